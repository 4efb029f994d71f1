// One rank's side of an engine: its queues of calls, what it has published, and the steps that move bytes.
// Works and the rank's list of outstanding work hold it, so it may outlive the engine object that a gang
// owns.
//
// A call is published (pointers and an arrival flag on the board) when it starts, or when the calls before it
// that share memory with it have ended; everything else is pulled by whoever polls or waits. On one channel
// calls run in order; sends and receives run in order per ordered pair.
//
// Progress is counted in rounds. A call whose input peers can read where it lies has one round; an input
// outside the arena is staged chunk by chunk through a ring of kStages: `filled` counts chunks put there by
// their owner, `drained` those that a reader is through with, `collected` those whose folded results were
// fetched.
//
// More than ten members: it is the engine's whole state; its parts are cut by file (starting, works, order,
// publish, steps, staging, reductions, pairs, failure, waiting, cycle).
//
// Thread rule: any thread of the rank; one mutex guards everything but the board.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gang/engine.h"
#include "gang/host/board.h"
#include "gang/host/member.h"
#include "gang/host/survivors.h"
#include "gang/rank.h"

namespace gangway::host {

class HostWork;

// One entry of the ring of last calls; stamps are of the cycle counter.
struct Flight {
  uint64_t sequence = 0, bytes = 0, start = 0, end = 0;
  Channel channel = Channel::user;
  CollectiveOp op = CollectiveOp::barrier;
};

constexpr size_t kFlights = 64;  // entries of the ring
constexpr int kEager = 8;        // looks without a pause: for a peer that is about to come
// A thread that drives large calls lets others at the mutex, and asks its caller's interrupt hook, between.
constexpr int kMoves = 8;               // steps under one hold of the mutex
constexpr size_t kStreamed = 16 << 20;  // bytes of an output from which on the caches would not keep it
constexpr size_t kMove = 1 << 20;       // bytes that one step moves, about

struct OpState {
  Collective c;
  uint64_t sequence = 0;  // on the channel, or of the ordered pair
  uint64_t fingerprint = 0;
  uint64_t flight = 0;
  Channel channel = Channel::user;
  HostWork* work = nullptr;
  struct Op* next = nullptr;

  size_t item = 1;
  size_t in_bytes = 0;
  uint64_t in_offset = 0;  // when the input lies in the arena
  uint64_t out_offset = 0;
  Source source = Source::none;
  bool published = false;
  int arrived = 0;                 // members [0, arrived) are known to have begun the call
  int finished = 0;                // members [0, finished) are known to be done with it
  bool planned = false;            // all arrived: the path is known
  bool in_place_on_peers = false;  // folds straight into peers' outputs
  bool fold_rounds = false;        // a reduction chunk by chunk, of which each rank folds a part
  size_t chunk = 0;                // bytes of one staged round
  size_t drain_chunk = 0;          // of each input that one step reads
  bool streams = false;            // the output is written past the caches
  uint64_t fill_rounds = 0, filled = 0;
  uint64_t drain_rounds = 0, drained = 0;
  uint64_t collect_rounds = 0, collected = 0;
  bool done = false;  // reads and writes no peer's memory any more
  bool output_ready = false, input_free = false;
};

struct Op : OpState {
  std::vector<size_t> counts;  // own copy of c.counts
};

// A queue of calls that run in order: a channel, or one direction of one pair.
struct Lane {
  Op* head = nullptr;
  Op* tail = nullptr;
  uint64_t sequence = 0;      // of the next call
  uint64_t history = 0;       // hash of all calls so far
  uint64_t reusable = 0;      // slots of calls before this one may be written again
  uint64_t staging = 0;       // offset of kStages chunks, and as many of results
  uint64_t small = 0;         // offset of kSmall bytes per slot
  uint64_t tables = 0;        // offset of size + 1 words per slot
  uint64_t staged_until = 0;  // staging is in use by peers until they are done with calls before this one
  Channel channel = Channel::user;
  int peer = -1;  // of a pair
  bool sending = false;
  bool active = false;  // on the list of lanes with work
};

struct CoreOptions {
  int64_t timeout_ms = 0;
  std::string label;
};

class Core final : public Progressive, public std::enable_shared_from_this<Core> {
 public:
  Core(std::shared_ptr<Works> owner, std::shared_ptr<Member> member, std::unique_ptr<Board> board, int rank,
       CoreOptions options);
  ~Core() override;

  int rank() const { return rank_; }
  int size() const { return size_; }
  Member& member() const { return *member_; }
  const std::shared_ptr<Member>& member_ptr() const { return member_; }
  const std::shared_ptr<Works>& owner() const { return owner_; }
  Board& board() const { return *board_; }
  const CoreOptions& options() const { return options_; }

  WorkPtr run(Channel channel, std::span<const Collective> span);
  // For a caller who will block. Most calls are over within one hold of the mutex, without a work to hand
  // out: null then.
  WorkPtr run_now(Channel channel, std::span<const Collective> span);
  bool progress() override;      // Progressive
  void end() noexcept override;  // likewise: what is in flight will not end
  // The engine object is gone: marks the leave, ends calls that nobody holds. What is left goes on until its
  // last work or its rank is gone.
  void release() noexcept;

  void publish(std::atomic<uint64_t>& counter, uint64_t value);
  void wait_counter(const std::atomic<uint64_t>& counter, uint64_t at_least, int owner, const char* what);
  void shutdown(Deadline deadline);
  void abort(const Error& error) noexcept;
  std::optional<Error> error();
  Survivors::Agreed meet_survivors(std::span<const int> survivors);  // of a broken engine
  void took(const Survivors::Agreed& agreed) noexcept { survivors_.took(agreed); }
  Traffic traffic() const;
  std::vector<FlightEntry> flight_record() const;

 private:
  friend class HostWork;
  class Waitable;
  class WorkWait;
  class CounterWait;
  class LeaveWait;
  class Patience;

  // starting.cpp
  // `begun`: the one call of the span when meet() has begun it, else null.
  void start(HostWork& work, Channel channel, std::span<const Collective> span, Op* begun);
  Op* begin(Lane& lane, Channel channel, const Collective& c);
  // Drives a call whose input rides with its flag, while nothing else is outstanding. True: it is over.
  // False: it has to be queued.
  bool meet(Lane& lane, Op& op);
  // works.cpp
  // Looks `turns` times; true: one of the states in `want` has come.
  bool drive(HostWork& work, uint32_t want, int turns);
  bool look(const HostWork& work, uint32_t want, int turns);  // the same, under the mutex
  void turn();                                                // every lane once
  void sweep();  // the same, of the moves that are left; breaks the engine on an error
  // Refuses forked, broken, shut down; attends. `call`: what is entered when it is no collective.
  void enter(Channel channel, const Collective* c, const char* call = "");
  void enqueue(Lane& lane, Op* op);
  void advance(Lane& lane);
  bool settle(Op& op);  // true: both ends have come
  void finish_output(Op& op);
  void finish_input(Op& op);
  Op* new_op();
  void recycle(Op* op);
  static bool ended(const HostWork& work);  // no call in a queue points to it
  std::shared_ptr<HostWork>& new_work();    // its place among works_
  Lane& lane_of(Channel channel, const Collective& c);
  void note_start(Op& op);
  double ns_per_tick() const;
  int64_t begun_ns(const Op& op) const;      // on this rank
  std::vector<FlightEntry> flights() const;  // under the mutex

  // order.cpp
  // The earlier call that must end before this one is published; null: none.
  const Op* holder(const Op& op) const;
  // publish.cpp
  bool publish_op(Lane& lane, Op& op);  // true: it is on the board
  bool publish_call(Lane& lane, Op& op);
  bool publish_send(Lane& lane, Op& op);
  bool publish_receive(Lane& lane, Op& op);
  void choose_source(Lane& lane, Op& op, Slot& slot, int slots);
  uint64_t block_of(uint64_t& offset, size_t bytes);
  // steps.cpp: calls on a channel
  bool step(Lane& lane, Op& op);  // true when it moved
  bool step_call(Lane& lane, Op& op);
  bool all_arrived(Op& op);
  bool peers_done(Op& op);
  void plan(Op& op);
  bool can_drain(const Op& op) const;
  void drain(Op& op);
  void mark_done(Op& op);
  void note_behind(const Op& op);
  void move_from(Op& op, int peer);
  void move_own(Op& op);
  const unsigned char* source_of(const Op& op, int peer, size_t in_first) const;
  // staging.cpp
  static bool filled_before(const Lane& lane, const Op& op);
  bool own_staging(Lane& lane, const Op& op);
  bool can_fill(Lane& lane, Op& op);
  void fill(Lane& lane, Op& op);
  // reductions.cpp
  void plan_reduction(Op& op);
  void fold_in_place(Op& op);
  void fold_small(Op& op);
  void fold_segment(Op& op);
  bool can_fold_round(Lane& lane, const Op& op);
  void fold_round(Lane& lane, Op& op);
  bool can_collect(const Op& op) const;
  void collect(Op& op);
  unsigned char* results_of(uint64_t staging, uint64_t round) const {
    return arena_.at(staging) + (kStages + round % kStages) * kChunk;
  }
  // pairs.cpp
  bool step_send(Lane& lane, Op& op);
  bool step_receive(Op& op);
  void receive_round(Op& op, const Slot& slot);

  // failure.cpp
  [[noreturn]] void throw_error() const;
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  // Looks for a reason to break; `work` is what the caller waits for, `call` what else it waits for or is about to
  // begin, "" for nothing. True: broken.
  bool check(const HostWork* work, const char* call, bool asleep = false);
  std::optional<Error> why_broken(const Op* op, const char* call) const;
  void refuse_when_closed(const Op& op) const;
  // What was read where it lies is no result when its owner gave the call up meanwhile.
  void refuse_when_given_up(const Op& op) const;
  bool check_absent(const Op& op);
  // Rank r does not come; this one waits for it since then. A rank whose threads ended before that may have
  // another one on its way.
  void notice_thread_exit(int r, int64_t waiting_since_ns);
  void break_here(const Error& error, bool tell_peers) noexcept;  // under the mutex
  void log_flights() const noexcept;  // what was going on, for whoever looks afterwards
  void give_up() noexcept;
  void fail_all() noexcept;
  Error lost_error(const std::string& call, const char* op, int r, const Loss& loss) const;
  Error left_error(const std::string& call, const char* op, int r) const;
  Error shaped(Error error, const char* op, int peer) const;
  [[noreturn]] void mismatch(const Op& op, int peer, const Slot& slot);
  void check_fingerprint(const Op& op, int peer, const Slot& slot) {
    if (slot.fingerprint.load(std::memory_order_acquire) != op.fingerprint) mismatch(op, peer, slot);
  }
  void leave(Mark mark) noexcept;              // gone: no call goes on
  void tell_calls() noexcept;                  // how many this rank will have made
  bool has_queued(int r, const Op& op) const;  // r is fading: will it begin the call?
  std::vector<int> waiting_for(const Op& op, bool only_absent) const;
  std::vector<int> missing(const Op& op) const;   // who has not come; all have: who has not done its part
  const Op* blocker(const HostWork& work) const;  // the call that holds the work up; null: none
  std::string call_text(const Op& op) const;      // "gang.all_reduce #3"
  std::string name_of(int r) const;               // "rank 2 (host node-b, pid 4711)"
  std::string alive_text(int departed) const;

  // waiting.cpp
  void block(Waitable& what, Deadline deadline);
  bool departed(Waitable& what);
  // cycle.cpp
  void publish_wait(Waitable& what);
  void clear_wait() noexcept;
  bool break_cycle();  // true: a cycle was found and broken

  // Stores with release order what peers may wait for; wake_peers() follows.
  // Without a fence where sleepers call membarrier: an exchange would wait for the line before it looks at
  // the peer's.
  void announce(std::atomic<uint64_t>& flag, uint64_t value) {
    if (fenced_) {
      flag.store(value, std::memory_order_release);
    } else {
      flag.exchange(value, std::memory_order_seq_cst);
    }
    announced_ = true;
  }
  void wake_peers() {
    if (!announced_) return;
    announced_ = false;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    for (const int r : others_) member_->wake(r);
  }
  ChannelLine& line(Channel c, int r) const { return board_->channel(c, r); }
  Slot& slot_of(const Op& op, int r) const { return line(op.channel, r).slots[op.sequence % kSlots]; }
  int domain_rank(int r) const { return board_->member(r).domain_rank; }

  const std::shared_ptr<Works> owner_;  // not the rank: its list holds this
  const std::shared_ptr<Member> member_;
  const std::unique_ptr<Board> board_;
  const int rank_;
  const int size_;
  const CoreOptions options_;
  Arena& arena_;
  std::vector<int> others_;  // domain ranks of the other members
  Survivors survivors_;

  mutable std::mutex mutex_;
  std::array<Lane, kChannels> channels_;
  std::vector<std::unique_ptr<Lane>> pairs_;  // [channel][peer][receive, send], made on first use
  std::vector<Lane*> active_;
  std::deque<Op> ops_;
  Op* free_ops_ = nullptr;
  int outstanding_ = 0;  // calls in queues
  bool listed_ = false;  // on the rank's list
  bool announced_ = false;
  bool fenced_ = true;              // all members take part in membarrier
  std::atomic<uint64_t> moves_{0};  // steps taken so far
  int moves_left_ = 0;              // under this hold of the mutex
  std::atomic<int> aborts_{0};      // calls of abort() that wait for the mutex
  bool shut_down_ = false;
  std::vector<std::shared_ptr<HostWork>> works_;
  size_t next_work_ = 0;
  std::atomic<uint32_t> losses_seen_{0};
  std::atomic<bool> failed_{false};
  std::optional<Error> error_;

  Traffic traffic_;
  std::vector<Flight> flights_;
  uint64_t flight_count_ = 0;
  const int64_t born_ns_;
  const uint64_t born_ticks_;
};

// A span of calls that was started together.
class HostWork final : public Work {
 public:
  bool poll() override { return poll_for(kOutput | kFailed); }
  bool poll_input() override { return poll_for(kInput | kFailed); }
  void wait(Deadline deadline) override;
  void wait_input(Deadline deadline) override;
  void order(Stream&) override { wait(Deadline::never()); }
  void order_input(Stream&) override { wait_input(Deadline::never()); }
  std::optional<Error> error() const override;

 private:
  friend class Core;
  enum State : uint32_t { kOutput = 1, kInput = 2, kFailed = 4 };

  // Under the core's mutex.
  void enter(State state) {
    state_.store(state_.load(std::memory_order_relaxed) | state, std::memory_order_release);
  }
  bool poll_for(uint32_t states);
  bool is_in(uint32_t states) const { return (state_.load(std::memory_order_acquire) & states) != 0; }

  std::weak_ptr<Core> core_;  // an outstanding call keeps it on its rank's list
  std::atomic<uint32_t> state_{0};
  int outputs_ = 0, inputs_ = 0;  // calls that have not ended
  std::optional<Error> error_;
};

}  // namespace gangway::host

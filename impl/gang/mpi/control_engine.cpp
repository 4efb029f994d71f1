#include "gang/mpi/control_engine.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <list>
#include <map>
#include <mutex>

#include "gang/backoff.h"
#include "gang/call_log.h"
#include "gang/mpi/messages.h"
#include "gang/mpi/runtime.h"

namespace gangway::mpi {
namespace {

constexpr int kAbortTag = 2 * kChannels, kChildTag = kAbortTag + 1;

class ControlState;

// The work of one launch.
class Call final : public OneEndWork {
 public:
  explicit Call(std::shared_ptr<ControlState> state) : state_(std::move(state)) {}
  bool poll() override;
  void wait(Deadline deadline) override;
  std::optional<Error> error() const override;

  std::atomic<int> open = 0;  // records that have not ended

 private:
  const std::shared_ptr<ControlState> state_;
};

// A record that waits for messages.
struct Record {
  Collective c;
  std::vector<size_t> counts;
  Head head;
  std::vector<std::string> received;
  std::vector<bool> has_received;
  int missing = 0;
  std::shared_ptr<Call> call;
  uint64_t number = 0;  // its entry in the log
};

// The state of an engine. It is a separate object because its calls may outlive the engine.
class ControlState final : public Progressive, public std::enable_shared_from_this<ControlState> {
 public:
  ControlState(MPI_Comm comm, std::shared_ptr<Works> works, const EngineOptions& options)
      : comm(comm), works(std::move(works)), options(options) {
    check(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
    check(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  }
  // Never frees the messages that MPI is still sending: MPI reads them until they have arrived.
  ~ControlState() override {
    if (!sent_.empty()) new auto(std::move(sent_));
  }

  std::shared_ptr<Call> run(Channel channel, std::span<const Collective> span) {
    auto call = std::make_shared<Call>(shared_from_this());
    const std::lock_guard lock(mutex_);
    if (error_) throw *error_;
    call->open = static_cast<int>(span.size());
    for (const Collective& c : span) begin(channel, c, call);
    move();
    if (!queues_.empty() && !std::exchange(listed_, true)) works->add(shared_from_this());
    return call;
  }

  bool progress() override {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock()) return false;
    move();
    listed_ = !queues_.empty() || !sent_.empty();
    return !listed_;
  }
  // Called when the engine is destroyed. The rank's list of works would otherwise keep this object alive.
  void leave() noexcept { works->remove(this); }
  void advance() {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (lock.owns_lock()) move();
  }

  void wait(const Call& call, Deadline deadline) {
    Backoff backoff;
    const Deadline own = Deadline::after_ms(options.timeout_ms);
    while (call.open != 0) {
      advance();
      works->progress();
      if (call.open == 0) break;
      if (const auto broken = error()) throw *broken;
      if (backoff.yields()) continue;
      if (own.passed()) {
        fail_with(
            Error(Code::timeout, text(options.label, ".", awaited(call), " in ", options.timeout_ms, " ms")));
        continue;
      }
      if (deadline.passed()) fail(Code::not_ready, options.label, ".", awaited(call), " yet");
      poll_core_interrupt();
      backoff.sleep();
    }
    works->add_wait(backoff.since_start_ns());
  }

  std::optional<Error> error() {
    const std::unique_lock lock(mutex_);
    receive_abort();
    return error_;
  }
  // Breaks this engine and tells the peers.
  void fail_with(const Error& error) noexcept {
    const std::lock_guard lock(mutex_);
    break_with(error);
  }

  const MPI_Comm comm;
  const std::shared_ptr<Works> works;
  const EngineOptions options;
  int rank = 0, size = 0;
  CallLog log;

 private:
  std::string called(int r) const { return rank_text(options, r); }

  // The key of a queue of records. The collectives of one channel share one queue (peer -1), because each
  // gets messages from all ranks. The sends and receives of each pair have a queue of their own, because they
  // get messages from one rank only.
  struct Key {
    int tag, peer;
    auto operator<=>(const Key&) const = default;
  };

  void begin(Channel channel, const Collective& c, const std::shared_ptr<Call>& call) {
    const bool pair = is_pair(c);
    const Key key{2 * static_cast<int>(channel) + (pair ? 1 : 0), pair ? c.peer : -1};
    uint64_t& sequence = sequences_[{key.tag + (c.op == CollectiveOp::recv ? kChildTag : 0), key.peer}];
    auto record = std::make_shared<Record>();
    record->c = c;
    if (c.counts != nullptr) {
      const int lists = c.op == CollectiveOp::all_to_all ? 2 : 1;
      record->counts.assign(c.counts, c.counts + lists * size);
      record->c.counts = record->counts.data();
    }
    record->head = head_of(c, sequence++);
    record->call = call;
    record->received.resize(static_cast<size_t>(size));
    record->has_received.resize(static_cast<size_t>(size));
    record->number = log.begin(channel, c, std::max(in_count(c, rank, size), out_count(c, rank, size)), 0);
    for (int r = 0; r < size; ++r) {
      const bool own = r == rank;
      if (sends_to(c, r) && !(own && !pair)) send(key.tag, r, *record);
      if (!receives_from(c, r)) continue;
      if (own && !pair) {
        record->received[static_cast<size_t>(r)] = own_part(record->c);
        record->has_received[static_cast<size_t>(r)] = true;
      } else {
        ++record->missing;
      }
    }
    if (record->missing == 0) return complete(*record);
    queues_[key].push_back(std::move(record));
  }

  std::string own_part(const Collective& c) const {
    if (!carries_data(c, rank, rank)) return {};
    if (c.op == CollectiveOp::broadcast) {
      // Only the root copies its own input.
      return {static_cast<const char*>(c.in), c.count * item_bytes(c.dtype)};
    }
    return outgoing(c, rank, rank);
  }

  void send(int tag, int to, const Record& record) {
    std::string message(reinterpret_cast<const char*>(&record.head), sizeof record.head);
    message += outgoing(record.c, rank, to);
    post(tag, to, std::move(message));
  }
  void post(int tag, int to, std::string message) {
    sent_.emplace_back(MPI_REQUEST_NULL, std::move(message));
    auto& [request, bytes] = sent_.back();
    check(MPI_Isend(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, to, tag, comm, &request),
          "MPI_Isend");
  }

  // Completes the records whose messages have arrived. The caller holds the mutex.
  void move() {
    try {
      receive_abort();
      std::erase_if(sent_, [](auto& one) {
        int done = 0;
        check(MPI_Test(&one.first, &done, MPI_STATUS_IGNORE), "MPI_Test");
        return done != 0;
      });
      for (auto queue = queues_.begin(); queue != queues_.end() && !error_;) {
        while (!queue->second.empty() && take(queue->first.tag, *queue->second.front())) {
          complete(*queue->second.front());
          queue->second.pop_front();
        }
        queue = queue->second.empty() ? queues_.erase(queue) : std::next(queue);
      }
    } catch (const Error& error) {
      break_with(error);
    } catch (const std::bad_alloc&) {
      break_with(Error(Code::out_of_memory, "no memory"));
    }
  }

  // Receives messages for `record`. Returns whether it now has all of them.
  bool take(int tag, Record& record) {
    for (int r = 0; r < size && record.missing != 0; ++r) {
      if (record.has_received[static_cast<size_t>(r)] || !receives_from(record.c, r)) continue;
      std::optional<std::string> message = receive(r, tag);
      if (!message) continue;
      check_message(record, r, *message);
      record.received[static_cast<size_t>(r)] = message->substr(sizeof(Head));
      record.has_received[static_cast<size_t>(r)] = true;
      --record.missing;
    }
    return record.missing == 0;
  }

  std::optional<std::string> receive(int from, int tag) {
    int is_there = 0, bytes = 0;
    MPI_Message handle;
    MPI_Status status;
    check(MPI_Improbe(from, tag, comm, &is_there, &handle, &status), "MPI_Improbe");
    if (is_there == 0) return std::nullopt;
    check(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
    std::string message(static_cast<size_t>(bytes), '\0');
    check(MPI_Mrecv(message.data(), bytes, MPI_BYTE, &handle, &status), "MPI_Mrecv");
    return message;
  }

  void check_message(const Record& record, int from, const std::string& message) const {
    Head other;
    if (message.size() < sizeof other) fail(Code::internal, "a message without a head");
    std::memcpy(&other, message.data(), sizeof other);
    const size_t bytes = incoming_bytes(record.c, rank, size, from);
    if (other == record.head && message.size() == sizeof other + bytes) return;
    Error error(Code::mismatch, text(options.label, ".", text_of(record.head, called(rank)), " meets ",
                                     text_of(other, called(from)),
                                     other == record.head ? ": their counts per rank differ"
                                                          : ": ranks called different collectives"));
    error.gang = options.label;
    error.op = name(record.c.op);
    error.rank = rank;
    error.peer = from;
    throw std::move(error);
  }

  void complete(Record& record) {
    finish(record.c, rank, size, record.received);
    log.end(record.number, "done");
    --record.call->open;
  }

  void break_with(const Error& error) noexcept {
    if (error_) return;
    keep_first(error_, error);
    queues_.clear();
    try {
      const int32_t code = static_cast<int32_t>(error.code());
      const std::string words = error.code() == Code::aborted
                                    ? text("aborted by ", called(rank), ": ", error.message())
                                    : error.message();
      for (int r = 0; r < size; ++r)
        if (r != rank)
          post(kAbortTag, r, std::string(reinterpret_cast<const char*>(&code), sizeof code) + words);
    } catch (...) {
      // Ignored: a peer that does not get the message fails at its own deadline.
    }
  }

  void receive_abort() {
    if (error_) return;
    for (int r = 0; r < size; ++r) {
      if (r == rank) continue;
      const std::optional<std::string> message = receive(r, kAbortTag);
      if (!message || message->size() < sizeof(int32_t)) continue;
      int32_t code;
      std::memcpy(&code, message->data(), sizeof code);
      Error error(static_cast<Code>(code), text(options.label, ": ", message->substr(sizeof code)));
      error.gang = options.label;
      error.rank = rank;
      error.peer = r;
      keep_first(error_, error);
      queues_.clear();
      return;
    }
  }

  // Describes what `call` waits for, such as "all_reduce #3: rank 1, rank 2 did not come".
  std::string awaited(const Call& call) {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, queue] : queues_)
      for (const auto& record : queue) {
        if (record->call.get() != &call) continue;
        const Record& first = *queue.front();
        std::string ranks;
        for (int r = 0; r < size; ++r)
          if (!first.has_received[static_cast<size_t>(r)] && receives_from(first.c, r))
            ranks += text(ranks.empty() ? "" : ", ", called(r));
        return text(name(first.c.op), " #", first.head.sequence, ": ", ranks, " did not come");
      }
    return "run: it did not end";
  }

  std::mutex mutex_;
  std::optional<Error> error_;
  std::map<Key, std::deque<std::shared_ptr<Record>>> queues_;
  std::map<Key, uint64_t> sequences_;
  std::list<std::pair<MPI_Request, std::string>> sent_;
  bool listed_ = false;
};

bool Call::poll() {
  state_->advance();
  return open == 0 || state_->error().has_value();
}
void Call::wait(Deadline deadline) { state_->wait(*this, deadline); }
std::optional<Error> Call::error() const { return open == 0 ? std::nullopt : state_->error(); }

class ControlEngine final : public Engine {
 public:
  ControlEngine(MPI_Comm comm, std::shared_ptr<Rank> owner, const EngineOptions& options)
      : owner_(std::move(owner)), state_(std::make_shared<ControlState>(comm, owner_->works(), options)) {}
  ~ControlEngine() override { state_->leave(); }

  const char* name() const override { return "mpi"; }
  int rank() const override { return state_->rank; }
  int size() const override { return state_->size; }
  EngineFacts facts() const override {
    EngineFacts facts;
    facts.takes_accumulate = facts.takes_mean = facts.takes_narrow_reductions = false;
    return facts;
  }
  WorkPtr run(Channel channel, std::span<const Collective> span, Stream&) override {
    return state_->run(channel, span);
  }
  std::shared_ptr<Engine> create(std::span<const int> ranks, const std::string& label) override {
    synchronize();
    if (std::find(ranks.begin(), ranks.end(), rank()) == ranks.end()) return nullptr;
    return engine_over(ranks, label);
  }
  std::shared_ptr<Engine> shrink(std::vector<int>& survivors) override {
    return engine_over(survivors, state_->options.label);
  }
  void abort(const Error& error) noexcept override { state_->fail_with(error); }
  std::optional<Error> error() const override { return state_->error(); }
  void shutdown(Deadline deadline) override {
    const Collective barrier;
    state_->run(Channel::control, {&barrier, 1})->wait(deadline);
  }
  Traffic traffic() const override { return state_->log.traffic(); }
  std::vector<FlightEntry> flight_record() const override { return state_->log.flight_record(); }

 private:
  // MPI waits without a deadline when it makes a communicator, so all ranks synchronize here first.
  void synchronize() {
    const Collective barrier;
    state_->run(Channel::control, {&barrier, 1})->wait(Deadline::never());
  }
  std::shared_ptr<Engine> engine_over(std::span<const int> ranks, const std::string& label) const {
    const auto own = static_cast<int>(std::find(ranks.begin(), ranks.end(), rank()) - ranks.begin());
    return std::make_shared<ControlEngine>(subset(state_->comm, ranks, kChildTag), owner_,
                                           child_options(state_->options, ranks, own, label));
  }

  const std::shared_ptr<Rank> owner_;
  const std::shared_ptr<ControlState> state_;
};

}  // namespace

std::shared_ptr<Engine> make_control_engine(const std::shared_ptr<Rank>& owner,
                                            const EngineOptions& options) {
  return std::make_shared<ControlEngine>(copy_of(MPI_COMM_WORLD, 1), owner, options);
}

}  // namespace gangway::mpi

#include "gang/host/calls.h"

#include <sched.h>

#include <utility>

#include "gang/host/algorithms/table.h"
#include "gang/host/call/awaited.h"
#include "gang/host/call/exchange.h"
#include "gang/host/call/prepare.h"
#include "gang/host/memory/futex.h"
#include "gang/rank.h"

namespace gangway::host {
namespace {

constexpr int64_t kProgressYieldNs = 20'000;

// Yields the processor a few times while the mutex is held. The time counts as waiting.
class BoundedYield {
 public:
  explicit BoundedYield(Works& owner) : owner_(owner) {}
  ~BoundedYield() {
    if (start_ != 0) owner_.add_wait(now_ns() - start_);
  }
  BoundedYield(const BoundedYield&) = delete;
  BoundedYield& operator=(const BoundedYield&) = delete;

  // Returns false if it has held the mutex for so long that an abort or a deadline must not wait any longer.
  bool yield() {
    const int64_t now = now_ns();
    if (start_ == 0) start_ = now;
    if (now - start_ > kProgressYieldNs) return false;
    sched_yield();
    return true;
  }

 private:
  Works& owner_;
  int64_t start_ = 0;
};

}  // namespace

Calls::Calls(Team& team) : team_(team), lanes_(team) {}

Op* Calls::begin(Channel channel, const Collective& c) {
  Lane& lane = lanes_.of(channel, c);
  Op* const op = lanes_.make();
  prepare(*op, lane, algorithm_of(c.op), c, team_.rank(), team_.size());
  op->sequence = lane.sequence++;
  op->fingerprint = fingerprint(*op, lane.history, team_.size());
  if (!lane.pair()) lane.history = op->fingerprint;
  traffic_.calls += 1;
  return op;
}

void Calls::note_start(Op& op) {
  op.noted = true;
  flight_recorder_.begin(op, std::max(op.in_bytes, out_count(op.c, team_.rank(), team_.size()) * op.item));
}

bool Calls::publish(Op& op) {
  if (lanes_.outstanding() > 1 && op.lane->head != &op && lanes_.holder(op) != nullptr) return false;
  Call one = call(op);
  return host::publish(one);
}

bool Calls::can_meet(std::span<const Collective> span) const {
  if (!lanes_.active().empty()) return false;
  if (span.size() == 1) return true;
  if (span.empty() || span.size() > kMet) return false;
  for (size_t i = 0; i < span.size(); ++i) {
    if (!is_pair(span[i])) return false;
    for (const Collective& before : span.first(i))
      if (before.op == span[i].op && before.peer == span[i].peer) return false;
  }
  return true;
}

void Calls::begin(Channel channel, std::span<const Collective> span, Op*& begun) {
  Op** end = &begun;
  for (const Collective& c : span) {
    *end = begin(channel, c);
    (*end)->next = nullptr;
    end = &(*end)->next;
  }
}

// Returns whether the calls can end without a lane: no peer reads an input after this rank's part is done.
bool Calls::publish_to_meet(Op* begun) {
  bool all = true;
  for (Op* op = begun; op != nullptr; op = op->next) all = publish(*op) && all;
  for (Op* op = begun; op != nullptr; op = op->next) {
    note_start(*op);  // after the calls were published, so that it costs no time while the peers arrive
    all = all && !is_read_in_place(op->source) && op->source != Source::staged;
  }
  return all;
}

// Drives the calls once. Returns false if more steps would hold the mutex for too long.
bool Calls::step_met(Op*& begun, bool at_once) {
  for (Op** place = &begun; *place != nullptr;) {
    Op* const op = *place;
    Call one = call(*op);
    int moves = 0;
    while (moves < kMoves && step(one)) ++moves;
    if (moves == kMoves) return false;
    if (!op->done || op->in_place_on_peers) {
      place = &op->next;
      continue;
    }
    team_.wake_announced();
    flight_recorder_.end_met(*op, at_once);
    *place = op->next;
    lanes_.recycle(op);
  }
  return true;
}

bool Calls::meet(Op*& begun, Works& owner) {
  if (!publish_to_meet(begun)) return false;
  team_.wake_announced();
  BoundedYield yields(owner);
  const bool crowded = team_.member().crowded();
  for (int i = 0; i < kTurns; ++i) {
    if (crowded && i >= kCrowdedTurns) {
      if (!yields.yield()) break;
    } else if (i >= kEager) {
      pause_cpu();
    }
    if (!step_met(begun, i < kEager)) break;
    if (begun == nullptr) return true;
  }
  return false;
}

void Calls::forget(Op* begun) {
  while (begun != nullptr) lanes_.recycle(std::exchange(begun, begun->next));
}

void Calls::enqueue(Op* op, HostWork& work) {
  if (!op->noted) note_start(*op);
  op->work = &work;
  lanes_.append(op);
}

void Calls::turn() {
  moves_left_ = kMoves;
  sweep();
}

bool Calls::look(const HostWork& work, uint32_t states, int turns) {
  moves_left_ = kMoves;
  for (int i = 0; i < turns && moves_left_ > 0 && !work.is_in(states); ++i) {
    if (i >= kEager) pause_cpu();
    sweep();
  }
  return work.is_in(states);
}

void Calls::sweep() {
  bool emptied = false;
  for (Lane* lane : lanes_.active()) {
    advance(*lane);
    emptied = emptied || lane->head == nullptr;
  }
  if (emptied) lanes_.drop_empty();
  team_.wake_announced();
}

void Calls::advance(Lane& lane) {
  Op* before = nullptr;
  for (Op* op = lane.head; op != nullptr;) {
    if (!op->published && !publish(*op)) return;
    Call one = call(*op);
    for (; moves_left_ > 0 && step(one); --moves_left_)
      moves_.store(moves_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    if (end_what_has(*op)) {
      Op* const over = op;
      op = lanes_.remove(before, over);
      lanes_.recycle(over);
      continue;
    }
    if (!op->done) {  // calls run in order: later ones may only publish themselves
      for (Op* later = op->next; later != nullptr; later = later->next)
        if (!later->published && !publish(*later)) break;
      return;
    }
    before = op;
    op = op->next;
  }
}

// Tells the work whether the call's output is ready and its input is free. Returns whether both are.
bool Calls::end_what_has(Op& op) {
  if (!op.done || !op.fill.over()) return false;
  Call one = call(op);
  const bool used = used_by_peers(op);
  const bool output_is_apart = op.c.async_input && !op.in_place_on_peers;
  if (!op.output_ready && (output_is_apart || !used || peers_done(one))) {
    op.output_ready = true;
    flight_recorder_.end(op);
    op.work->output_ended();
  }
  if (op.output_ready && !op.input_free && (!used || peers_done(one))) {
    op.input_free = true;
    op.work->input_ended();
  }
  return op.input_free;
}

void Calls::fail(const Error& error) noexcept {
  for (Lane* lane : lanes_.active()) {
    while (Op* const op = lane->head) {
      lanes_.remove(nullptr, op);
      op->work->fail(error);
      lanes_.recycle(op);
    }
  }
  lanes_.drop_empty();
}

std::vector<FlightEntry> Calls::flight_record(const std::optional<Error>& error) const {
  const double scale = flight_recorder_.ns_per_tick();
  std::vector<FlightEntry> entries;
  for (uint64_t i = flight_recorder_.first(); i < flight_recorder_.count(); ++i) {
    entries.push_back(flight_recorder_.entry(i, scale));
    std::string& state = entries.back().state;
    if (!state.empty()) continue;
    state = error ? "failed: " + error->message() : "started";
    for (const Lane* lane : lanes_.active())
      for (const Op* op = lane->head; op != nullptr; op = op->next)
        if (op->flight == i) state = "waiting for " + team_.ranks_text(missing(team_, lanes_, *op));
  }
  return entries;
}

}  // namespace gangway::host

// Driving calls, ending them; the ring of the last ones.
#include <sched.h>

#include <algorithm>

#include "gang/host/calls.h"
#include "gang/host/core.h"
#include "gang/host/futex.h"
#include "gang/host/ticks.h"

namespace gangway::host {
namespace {

constexpr size_t kWorks = 64;

}  // namespace

Core::Core(std::shared_ptr<Works> owner, std::shared_ptr<Member> member, std::unique_ptr<Board> board,
           int rank, CoreOptions options)
    : owner_(std::move(owner)),
      member_(std::move(member)),
      board_(std::move(board)),
      rank_(rank),
      size_(board_->size()),
      options_(std::move(options)),
      arena_(member_->arena()),
      survivors_(*member_, *board_, rank_, options_.label),
      flights_(kFlights),
      born_ns_(now_ns()),
      born_ticks_(ticks()) {
  for (int c = 0; c < kChannels; ++c) channels_[static_cast<size_t>(c)].channel = static_cast<Channel>(c);
  for (int r = 0; r < size_; ++r)
    if (r != rank_) others_.push_back(domain_rank(r));
  for (int r = 0; r < size_; ++r) fenced_ = fenced_ && member_->fenced(domain_rank(r));
  board_->attach(rank_);
}

Core::~Core() = default;

void Core::enter(Channel channel, const Collective* c, const char* call) {
  if (member_->forked())
    fail(Code::forked, options_.label, ": rank ", rank_, " was made before fork; a child of it has no gang");
  member_->attend();
  if (!failed() && !board_->broken() && member_->losses() == losses_seen_.load(std::memory_order_relaxed)) {
    if (shut_down_) fail(Code::invalid_state, options_.label, ": was shut down");
    return;
  }
  std::string numbered;
  if (c != nullptr) {
    const std::lock_guard lock(mutex_);
    numbered = text(gangway::name(c->op), " #", lane_of(channel, *c).sequence);
  }
  if (check(nullptr, c != nullptr ? numbered.c_str() : call)) throw_error();
}

bool Core::progress() {
  if (member_->forked()) return true;
  if (aborts_.load(std::memory_order_relaxed) != 0) return false;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return false;  // somebody drives it
  turn();
  if (outstanding_ == 0) listed_ = false;
  return !listed_;
}

bool Core::drive(HostWork& work, uint32_t want, int turns) {
  while (aborts_.load(std::memory_order_relaxed) != 0) sched_yield();  // else it is taken again at once
  const std::lock_guard lock(mutex_);
  return look(work, want, turns);
}

bool Core::look(const HostWork& work, uint32_t want, int turns) {
  moves_left_ = kMoves;
  for (int i = 0; i < turns && moves_left_ > 0 && !work.is_in(want); ++i) {
    if (i >= kEager) pause_cpu();
    sweep();
  }
  return work.is_in(want);
}

void Core::turn() {
  moves_left_ = kMoves;
  sweep();
}

void Core::sweep() {
  try {
    for (size_t i = 0; i < active_.size();) {
      Lane& lane = *active_[i];
      advance(lane);
      if (lane.head == nullptr) {
        lane.active = false;
        active_.erase(active_.begin() + static_cast<std::ptrdiff_t>(i));
      } else {
        ++i;
      }
    }
  } catch (const Error& error) {
    break_here(error, true);
  } catch (const std::bad_alloc&) {
    break_here(Error(Code::out_of_memory, "no memory"), true);
  }
  wake_peers();
}

void Core::enqueue(Lane& lane, Op* op) {
  op->next = nullptr;
  if (!lane.active) {  // first, as it may want memory
    active_.push_back(&lane);
    lane.active = true;
  }
  if (lane.head == nullptr) {
    lane.head = lane.tail = op;
  } else {
    lane.tail->next = op;
    lane.tail = op;
  }
}

void Core::advance(Lane& lane) {
  Op* before = nullptr;
  for (Op* op = lane.head; op != nullptr;) {
    if (!op->published && !publish_op(lane, *op)) return;
    for (; moves_left_ > 0 && step(lane, *op); --moves_left_)
      moves_.store(moves_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    if (settle(*op)) {
      Op* const over = op;
      op = op->next;
      (before == nullptr ? lane.head : before->next) = op;
      if (lane.tail == over) lane.tail = before;
      recycle(over);
      continue;
    }
    if (!op->done) {  // calls run in order; the next ones may only say that they are here
      for (Op* later = op->next; later != nullptr; later = later->next)
        if (!later->published && !publish_op(lane, *later)) break;
      return;
    }
    before = op;
    op = op->next;
  }
}

bool Core::settle(Op& op) {
  if (!op.done || op.filled < op.fill_rounds) return false;
  const bool read_by_peers = op.source == Source::direct || op.in_place_on_peers;
  if (!op.output_ready && ((op.c.async_input && !op.in_place_on_peers) || !read_by_peers || peers_done(op)))
    finish_output(op);
  if (op.output_ready && !op.input_free && (!read_by_peers || peers_done(op))) finish_input(op);
  return op.input_free;
}

void Core::finish_output(Op& op) {
  op.output_ready = true;
  if (op.flight + kFlights >= flight_count_)
    flights_[op.flight % kFlights].end = ticks();  // else it is another's
  if (--op.work->outputs_ == 0) op.work->enter(HostWork::kOutput);
}

void Core::finish_input(Op& op) {
  op.input_free = true;
  if (--op.work->inputs_ == 0) op.work->enter(HostWork::kInput);
}

Op* Core::new_op() {
  ++outstanding_;
  if (free_ops_ == nullptr) return &ops_.emplace_back();
  Op* const op = free_ops_;
  free_ops_ = op->next;
  return op;
}

void Core::recycle(Op* op) {
  --outstanding_;
  static_cast<OpState&>(*op) = OpState{};
  op->counts.clear();  // keeps its capacity
  op->next = free_ops_;
  free_ops_ = op;
}

bool Core::ended(const HostWork& work) { return work.is_in(HostWork::kInput | HostWork::kFailed); }

std::shared_ptr<HostWork>& Core::new_work() {
  for (size_t i = 0; i < works_.size() && i < 4; ++i) {
    std::shared_ptr<HostWork>& work = works_[next_work_++ % works_.size()];
    if (work.use_count() != 1 || !ended(*work)) continue;
    work->error_.reset();
    work->state_.store(0, std::memory_order_relaxed);
    return work;
  }
  auto work = std::make_shared<HostWork>();
  work->core_ = weak_from_this();
  // Calls in flight point to their work, which nobody but this list may hold: only an ended one leaves it.
  std::shared_ptr<HostWork>* place = nullptr;
  if (works_.size() >= kWorks) place = &works_[next_work_++ % works_.size()];
  if (place == nullptr || !ended(**place)) place = &works_.emplace_back();
  *place = std::move(work);
  return *place;
}

Lane& Core::lane_of(Channel channel, const Collective& c) {
  const bool sending = c.op == CollectiveOp::send;
  if (!sending && c.op != CollectiveOp::recv) return channels_[static_cast<size_t>(channel)];
  if (pairs_.empty()) pairs_.resize(static_cast<size_t>(kChannels) * static_cast<size_t>(size_) * 2);
  auto& lane =
      pairs_[(static_cast<size_t>(channel) * static_cast<size_t>(size_) + static_cast<size_t>(c.peer)) * 2 +
             (sending ? 1 : 0)];
  if (lane == nullptr) {
    lane = std::make_unique<Lane>();
    lane->channel = channel;
    lane->peer = c.peer;
    lane->sending = sending;
  }
  return *lane;
}

void Core::note_start(Op& op) {
  op.flight = flight_count_++;
  Flight& flight = flights_[op.flight % kFlights];
  flight = {op.sequence, std::max(op.in_bytes, out_count(op.c, rank_, size_) * op.item),
            ticks(),     0,
            op.channel,  op.c.op};
}

std::vector<FlightEntry> Core::flight_record() const {
  const std::lock_guard lock(mutex_);
  return flights();
}

double Core::ns_per_tick() const {
  return static_cast<double>(now_ns() - born_ns_) /
         static_cast<double>(std::max<uint64_t>(1, ticks() - born_ticks_));
}

int64_t Core::begun_ns(const Op& op) const {
  if (op.flight + kFlights < flight_count_) return born_ns_;  // long ago
  const uint64_t start = flights_[op.flight % kFlights].start;
  return born_ns_ + static_cast<int64_t>(static_cast<double>(start - born_ticks_) * ns_per_tick());
}

std::vector<FlightEntry> Core::flights() const {
  const double scale = ns_per_tick();  // one for all, or an end could lie before its start
  const auto ns = [&](uint64_t t) {
    return static_cast<int64_t>(static_cast<double>(t - born_ticks_) * scale);
  };
  std::vector<FlightEntry> entries;
  for (uint64_t i = flight_count_ > kFlights ? flight_count_ - kFlights : 0; i < flight_count_; ++i) {
    const Flight& f = flights_[i % kFlights];
    FlightEntry entry{f.sequence, f.channel, f.op, f.bytes, ns(f.start), f.end == 0 ? -1 : ns(f.end), "done"};
    if (f.end == 0) {
      entry.state = error_ ? "failed: " + error_->message() : "started";
      for (const Lane* lane : active_)
        for (const Op* op = lane->head; op != nullptr; op = op->next)
          if (op->flight == i) entry.state = "waiting for " + ranks_text(missing(*op));
    }
    entries.push_back(std::move(entry));
  }
  return entries;
}

Traffic Core::traffic() const {
  const std::lock_guard lock(mutex_);
  return traffic_;
}

}  // namespace gangway::host

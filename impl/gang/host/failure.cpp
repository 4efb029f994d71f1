// Why an engine breaks: another call than the peers', a lost or departed rank, abort.
#include <algorithm>
#include <cstdio>

#include "base/log.h"
#include "gang/host/calls.h"
#include "gang/host/core.h"
#include "gang/host/fold.h"

namespace gangway::host {
namespace {

// A thread rank whose thread ended is lost when no other thread has taken it over for so long. A program may well use
// new threads for each phase, and their first call may come late: a thread that began after the rank's last one ended
// is of such a phase, and generous. One that was there before misses it soon.
constexpr int64_t kUnattendedMs = 50;
constexpr int64_t kNextPhaseMs = 10'000;

std::string milliseconds(int64_t ns) {
  char out[32];
  std::snprintf(out, sizeof out, "%.1f ms", static_cast<double>(ns) / 1e6);
  return out;
}

struct Described {
  CollectiveOp op;
  Reduce reduce;
  int32_t dtype, peer;
  uint64_t count;
};

bool rooted(CollectiveOp op) {
  return op == CollectiveOp::broadcast || op == CollectiveOp::reduce || op == CollectiveOp::gather ||
         op == CollectiveOp::scatter;
}

std::string arguments(const Described& d, bool all) {
  std::string out = text("(", d.count, " ", name(static_cast<DType>(d.dtype)));
  if (all && d.reduce != Reduce::none) out += text(", ", name(d.reduce));
  if (all && rooted(d.op)) out += text(", root ", d.peer);
  return out + ")";
}

}  // namespace

void Core::throw_error() const {
  const std::lock_guard lock(mutex_);
  throw *error_;
}

std::optional<Error> Core::error() {
  if (member_->forked()) return Error(Code::forked, options_.label + ": made before fork");
  check(nullptr, "");
  const std::lock_guard lock(mutex_);
  return error_;
}

Survivors::Agreed Core::meet_survivors(std::span<const int> survivors) {
  if (member_->forked()) fail(Code::forked, options_.label, ".shrink: after fork");
  if (!error()) fail(Code::invalid_state, options_.label, ".shrink: the gang is not broken");
  member_->attend();
  { const std::lock_guard quiet(mutex_); }  // no thread moves bytes any more
  return survivors_.meet(survivors, options_.timeout_ms);
}

bool Core::check(const HostWork* work, const char* call, bool asleep) {
  if (failed()) return true;
  const uint32_t losses = member_->losses();
  const bool gone = work != nullptr && board_->header().gone.load(std::memory_order_acquire) != 0;
  const bool threads = asleep && work != nullptr && arena_.threads();
  if (!board_->broken() && losses == losses_seen_.load(std::memory_order_relaxed) && !gone && !threads)
    return false;
  const std::lock_guard lock(mutex_);
  if (error_) return true;
  const Op* const op = work == nullptr ? nullptr : blocker(*work);
  if (const auto why = why_broken(op, call)) {
    break_here(*why, false);
    return true;
  }
  losses_seen_.store(losses, std::memory_order_relaxed);
  return op != nullptr && (gone || threads) && check_absent(*op);
}

// Of several reasons the first in time counts: a rank that was told of a failure may have left because of it.
std::optional<Error> Core::why_broken(const Op* op, const char* call) const {
  std::optional<Error> broken = board_->error(rank_);
  const int64_t broken_ns = board_->broken_ns();
  int lost = -1;
  std::optional<Loss> first;
  for (int r = 0; r < size_; ++r) {
    const auto loss = member_->loss(domain_rank(r));
    if (loss && (!first || loss->at_ns < first->at_ns)) first = loss, lost = r;
  }
  const bool by_loss = first && !(broken && first->at_ns > broken_ns);
  const bool by_leave = !by_loss && broken && broken->code() == Code::peer_lost;
  if (!by_loss && !by_leave) return broken;
  const std::string where = op != nullptr   ? call_text(*op)
                            : *call != '\0' ? text(options_.label, ".", call)
                                            : options_.label;
  const char* const name = op != nullptr ? gangway::name(op->c.op) : "";
  return by_loss ? lost_error(where, name, lost, *first) : left_error(where, name, broken->peer);
}

// Those who go on without this rank say so, then look at its `writing`; this rank sets that, then looks here.
void Core::refuse_when_closed(const Op& op) const {
  if (board_->header().closed.load(std::memory_order_seq_cst) == 0 && !member_->loss(domain_rank(rank_)))
    return;
  if (const auto why = why_broken(&op, "")) throw *why;
  throw shaped(Error(Code::aborted, text(call_text(op), ": the other ranks went on without rank ", rank_)),
               gangway::name(op.c.op), -1);
}

void Core::refuse_when_given_up(const Op& op) const {
  std::atomic_thread_fence(std::memory_order_acquire);  // what was read stays before the look
  if (board_->header().given_up.load(std::memory_order_acquire) == 0) return;
  const bool receives = op.c.op == CollectiveOp::recv;
  const Peers from = receives ? Peers::root : producers(op, rank_, op.in_bytes <= kInline);
  for (int r = 0; r < size_; ++r) {
    if (r == rank_ || from == Peers::none || (from == Peers::root && r != op.c.peer)) continue;
    const Slot& slot =
        receives ? board_->pair(op.channel, r, rank_).slots[op.sequence % kPairSlots] : slot_of(op, r);
    if (slot.source != Source::direct || board_->member(r).given_up.load(std::memory_order_acquire) == 0)
      continue;
    if (const auto why = why_broken(&op, "")) throw *why;
    if (board_->has_left(r)) throw left_error(call_text(op), gangway::name(op.c.op), r);
    throw shaped(Error(Code::aborted, text(call_text(op), ": ", name_of(r), " gave it up in its middle")),
                 gangway::name(op.c.op), r);
  }
}

// Is the call waiting for a rank that has left the gang for good?
bool Core::check_absent(const Op& op) {
  const Op* first = &op;  // the one that waiting_for looks at
  while (const Op* const before = holder(*first)) first = before;
  const std::vector<int> absent = waiting_for(op, true);
  int left = -1, leaving = -1;
  int64_t left_ns = INT64_MAX;
  for (const int r : waiting_for(op, false)) {
    const MemberLine& member = board_->member(r);
    const auto mark = static_cast<Mark>(member.mark.load(std::memory_order_acquire));
    const int64_t marked_ns = member.marked_ns.load(std::memory_order_relaxed);
    const bool absent_yet = std::find(absent.begin(), absent.end(), r) != absent.end();
    const bool gone = mark == Mark::gone || (mark == Mark::fading && absent_yet && !has_queued(r, *first));
    if (gone && marked_ns < left_ns) left = r, left_ns = marked_ns;
    if (absent_yet && (mark == Mark::leaving || mark == Mark::left)) leaving = r;
    notice_thread_exit(r, begun_ns(op));
  }
  const char* const name = gangway::name(op.c.op);
  if (left >= 0) {
    break_here(left_error(call_text(op), name, left), true);
  } else if (leaving >= 0) {
    const Described mine{op.c.op, op.c.reduce, static_cast<int32_t>(op.c.dtype), op.c.peer, op.c.count};
    const std::string what =
        text(call_text(op), " of rank ", rank_, " ", arguments(mine, false), " meets shutdown of rank ",
             leaving, ": ranks called different collectives");
    break_here(shaped(Error(Code::mismatch, what), name, leaving), true);
  }
  return left >= 0 || leaving >= 0;
}

bool Core::has_queued(int r, const Op& op) const {
  const std::atomic<uint64_t>& calls =
      op.c.op == CollectiveOp::send   ? board_->pair(op.channel, rank_, r).receives
      : op.c.op == CollectiveOp::recv ? board_->pair(op.channel, r, rank_).sends
                                      : line(op.channel, r).calls;
  return calls.load(std::memory_order_relaxed) > op.sequence;
}

void Core::notice_thread_exit(int r, int64_t waiting_since_ns) {
  if (!arena_.threads()) return;
  const int64_t since = arena_.rank(domain_rank(r)).unattended_since_ns.load(std::memory_order_relaxed);
  if (since == 0) return;
  const int64_t longest = member_->attended_since() < since ? kUnattendedMs : kNextPhaseMs;
  const int64_t patience = options_.timeout_ms < 0 ? longest : std::min(longest, options_.timeout_ms / 2);
  if (now_ns() - std::max(since, waiting_since_ns) > patience * 1'000'000)
    member_->declare_lost(domain_rank(r), Loss{LossCause::thread_exit, 0, since});
}

void Core::break_here(const Error& error, bool tell_peers) noexcept {
  if (error_) return;
  keep_first(error_, error);
  // Where a rank was lost, this one's own error names the call.
  if (tell_peers && !board_->break_with(error, rank_) && error.code() != Code::peer_lost) {
    try {
      if (auto first = why_broken(nullptr, "")) error_ = std::move(first);
    } catch (const std::bad_alloc&) {  // this rank's own reason is true too
    }
  }
  give_up();
  log_flights();  // before the calls forget whom they wait for
  fail_all();
  announced_ = false;
  for (const int r : others_) member_->wake(r);
  member_->wake(member_->rank());
}

// Said before anybody here can see the failure and take the memory of its calls back.
void Core::give_up() noexcept {
  if (outstanding_ > 0) {
    board_->member(rank_).given_up.store(1, std::memory_order_release);
    board_->header().given_up.store(1, std::memory_order_seq_cst);
    std::atomic_thread_fence(std::memory_order_seq_cst);  // before the caller writes what it took back
  }
  failed_.store(true, std::memory_order_release);
}

void Core::log_flights() const noexcept {
  constexpr size_t kLogged = 16;
  try {
    log(LogLevel::error, text("rank ", rank_, ": ", error_->message()));
    const std::vector<FlightEntry> all = flights();
    for (size_t i = all.size() - std::min(all.size(), kLogged); i < all.size(); ++i) {
      const FlightEntry& f = all[i];
      const std::string end = f.end_ns < 0 ? "" : text(" to ", milliseconds(f.end_ns));
      log(LogLevel::error,
          text("rank ", rank_, ": ", options_.label, ".", gangway::name(f.op), " #", f.sequence, ", ",
               f.bytes, " bytes, from ", milliseconds(f.start_ns), end, ": ", f.state));
    }
  } catch (const std::bad_alloc&) {  // the error itself is kept
  }
}

void Core::fail_all() noexcept {
  for (Lane* lane : active_) {
    while (lane->head != nullptr) {
      Op* const op = lane->head;
      lane->head = op->next;
      keep_first(op->work->error_, *error_);
      op->work->enter(HostWork::kFailed);
      recycle(op);
    }
    lane->tail = nullptr;
    lane->active = false;
  }
  active_.clear();
}

void Core::abort(const Error& error) noexcept {
  if (member_->forked()) return;
  aborts_.fetch_add(1, std::memory_order_relaxed);
  const std::lock_guard lock(mutex_);
  aborts_.fetch_sub(1, std::memory_order_relaxed);
  try {
    break_here(shaped(error, error.op.c_str(), error.peer), true);
  } catch (const std::bad_alloc&) {  // no memory to say where
    break_here(error, true);
  }
}

Error Core::shaped(Error error, const char* op, int peer) const {
  error.gang = options_.label;
  error.op = op;
  error.rank = rank_;
  error.peer = peer;
  return error;
}

Error Core::lost_error(const std::string& call, const char* op, int r, const Loss& loss) const {
  std::string how;
  const std::string ago = milliseconds(std::max<int64_t>(0, now_ns() - loss.at_ns)) + " ago";
  switch (loss.cause) {
    case LossCause::unknown: how = " was lost " + ago; break;
    case LossCause::signal: how = text(" was lost ", ago, ", killed by signal ", loss.value); break;
    case LossCause::exit: how = text(" left without shutdown ", ago, ", exit code ", loss.value); break;
    case LossCause::silent: how = text(" was lost ", ago, ", no heartbeat for ", loss.value, " ms"); break;
    case LossCause::thread_exit: how = " left without shutdown " + ago + ", its thread ended"; break;
  }
  return shaped(Error(Code::peer_lost, text(call, ": ", name_of(r), how, "; ", alive_text(r))), op, r);
}

Error Core::left_error(const std::string& call, const char* op, int r) const {
  return shaped(
      Error(Code::peer_lost, text(call, ": ", name_of(r), " left without shutdown; ", alive_text(r))), op, r);
}

void Core::mismatch(const Op& op, int peer, const Slot& slot) {
  const Described mine{op.c.op, op.c.reduce, static_cast<int32_t>(op.c.dtype), op.c.peer, op.c.count};
  const Described other{slot.op, slot.reduce, slot.dtype, slot.peer, slot.count};
  const bool plain_differ = mine.op != other.op || mine.count != other.count || mine.dtype != other.dtype;
  const bool pair = op.c.op == CollectiveOp::send || op.c.op == CollectiveOp::recv;
  const std::string a = arguments(mine, !plain_differ), b = arguments(other, !plain_differ);
  std::string what = text(call_text(op), " of rank ", rank_, " ", a, " meets ", gangway::name(slot.op), " #",
                          op.sequence, " of rank ", peer, " ", b, ": ");
  if (plain_differ || a != b) {
    what += pair ? "the two ends differ" : "ranks called different collectives";
  } else if (!op.counts.empty()) {
    what += "their counts per rank, or the calls before, differ";
  } else {
    what += "the calls before were different collectives";
  }
  throw shaped(Error(Code::mismatch, what), gangway::name(op.c.op), peer);
}

std::vector<int> Core::waiting_for(const Op& op, bool only_absent) const {
  if (const Op* const before = holder(op)) return waiting_for(*before, only_absent);
  std::vector<int> ranks;
  const uint64_t over = progress_of(op.sequence + 1, 0);
  if (op.c.op == CollectiveOp::send || op.c.op == CollectiveOp::recv) {
    const bool sending = op.c.op == CollectiveOp::send;
    const PairLine& pair =
        sending ? board_->pair(op.channel, rank_, op.c.peer) : board_->pair(op.channel, op.c.peer, rank_);
    const bool come =
        sending ? pair.wanted.load(std::memory_order_acquire) > op.sequence
                : pair.slots[op.sequence % kPairSlots].arrived.load(std::memory_order_acquire) > op.sequence;
    const bool finished = sending ? pair.drained.load(std::memory_order_acquire) >= over : op.done;
    if (!come || (!only_absent && !finished)) ranks.push_back(op.c.peer);
    return ranks;
  }
  const bool small = op.in_bytes <= kInline;
  const Peers from = producers(op, rank_, small);
  const Peers by = op.in_place_on_peers ? Peers::all : consumers(op, rank_);
  for (int r = 0; r < size_; ++r) {
    if (r == rank_) continue;
    const bool needed = from == Peers::all || (from == Peers::root && op.c.peer == r);
    const bool reads = op.source != Source::inlined && op.source != Source::small &&
                       op.source != Source::none &&
                       (by == Peers::all || (by == Peers::root && op.c.peer == r));
    const bool come = slot_of(op, r).arrived.load(std::memory_order_acquire) > op.sequence;
    const bool finished = line(op.channel, r).drained.load(std::memory_order_acquire) >= over;
    if (!op.published) {  // its slot is still read by those who are behind
      const uint64_t ended = line(op.channel, r).drained.load(std::memory_order_acquire) >> kRoundBits;
      if (ended + kSlots <= op.sequence) ranks.push_back(r);
      continue;
    }
    if (only_absent ? (needed || reads) && !come
                    : (needed && !come) || ((reads || (needed && !op.done)) && !finished))
      ranks.push_back(r);
  }
  return ranks;
}

std::vector<int> Core::missing(const Op& op) const {
  std::vector<int> ranks = waiting_for(op, true);
  return ranks.empty() ? waiting_for(op, false) : ranks;
}

const Op* Core::blocker(const HostWork& work) const {
  for (const Lane* lane : active_) {
    const Op* first = nullptr;  // the first call of the lane that has not done its part
    for (const Op* op = lane->head; op != nullptr; op = op->next) {
      if (first == nullptr && !op->done) first = op;
      if (op->work != &work) continue;
      const Op* const at = op->done || first == nullptr ? op : first;
      const Op* const before = holder(*at);
      return before != nullptr ? before : at;
    }
  }
  return nullptr;
}

std::string Core::call_text(const Op& op) const {
  return text(options_.label, ".", gangway::name(op.c.op), " #", op.sequence);
}

std::string Core::name_of(int r) const {
  return text("rank ", r, " (host ", member_->host(), ", pid ",
              arena_.rank(domain_rank(r)).pid.load(std::memory_order_relaxed), ")");
}

std::string Core::alive_text(int departed) const {
  std::vector<int> alive;
  for (int r = 0; r < size_; ++r) {
    if (r != departed && !member_->loss(domain_rank(r))) alive.push_back(r);
  }
  return ranks_text(alive) + (alive.size() == 1 ? " is alive" : " are alive");
}

}  // namespace gangway::host

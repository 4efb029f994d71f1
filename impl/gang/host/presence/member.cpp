#include "gang/host/presence/member.h"

#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <utility>

#include "base/cores.h"
#include "gang/host/memory/futex.h"
#include "gang/host/presence/watchdog.h"

namespace gangway::host {

// The members that the calling thread acts for. They are unregistered when the thread ends.
struct ThreadRegistrations {
  struct Registration {
    std::weak_ptr<Member> member;
    int64_t since_ns;
  };
  std::vector<Registration> list;

  ~ThreadRegistrations() {
    for (const Registration& one : list)
      if (const auto member = one.member.lock()) member->unregister_thread();
  }
};

namespace {

std::atomic<uint64_t> member_ids{0};

thread_local ThreadRegistrations registrations;
// The id of the member that was registered last. It is a variable of its own because a trivial thread_local
// is read without a check of its initialisation.
thread_local uint64_t last_registered = 0;

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "?";
}

}  // namespace

int64_t now_ns() noexcept {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<int64_t>(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
}

uint64_t pid_space() {
  struct stat s {};
  return stat("/proc/self/ns/pid", &s) == 0 ? s.st_ino : 0;
}

Member::Member(std::shared_ptr<Arena> arena, int rank)
    : arena_(std::move(arena)),
      slice_(std::make_shared<Slice>(arena_, rank)),
      peer_reads_(*arena_, rank),
      rank_(rank),
      id_(member_ids.fetch_add(1, std::memory_order_relaxed) + 1),
      host_(host_name()),
      crowded_(static_cast<int>(arena_->header().size) > usable_cores()) {}

void Member::begin(const std::shared_ptr<Member>& self) {
  self_ = self;
  RankSlot& slot = own();
  slot.pid.store(static_cast<int32_t>(getpid()), std::memory_order_relaxed);
  slot.pid_space.store(pid_space(), std::memory_order_relaxed);
  slot.uses_membarrier.store(syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0,
                             std::memory_order_relaxed);
  peer_reads_.publish();
  if (!arena_->threads()) watchdog_ = std::make_unique<Watchdog>(*this);
  slot.state.store(static_cast<int32_t>(RankState::alive), std::memory_order_seq_cst);
  wake_all();
  // Wakes the other watchdogs, because the rank that each of them watches may change.
  if (watchdog_ != nullptr)
    for (int r = 0; r < size(); ++r) futex_wake(arena_->rank(r).alive_lock, INT_MAX);
}

Member::~Member() {
  if (forked()) {
    if (watchdog_ != nullptr) watchdog_.release()->forget();
    return;
  }
  int32_t alive = static_cast<int32_t>(RankState::alive);
  own().state.compare_exchange_strong(alive, static_cast<int32_t>(RankState::left),
                                      std::memory_order_seq_cst);
  watchdog_.reset();
  wake_all();
}

void Member::ring(RankSlot& slot) noexcept {
  slot.doorbell.fetch_add(1, std::memory_order_seq_cst);
  futex_wake(slot.doorbell, INT_MAX);
}

uint32_t Member::prepare_sleep() const noexcept {
  own().sleeping.fetch_add(1, std::memory_order_seq_cst);
  if (uses_membarrier(rank_)) syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);
  return own().doorbell.load(std::memory_order_seq_cst);
}

void Member::wake_all() const noexcept {
  for (int r = 0; r < size(); ++r) wake(r);
}

void Member::sleep(uint32_t seen, int64_t ns) const noexcept { futex_wait(own().doorbell, seen, ns); }

std::optional<Loss> Member::loss(int r) const {
  const RankSlot& slot = arena_->rank(r);
  if (slot.state.load(std::memory_order_seq_cst) != static_cast<int32_t>(RankState::lost))
    return std::nullopt;
  return Loss{static_cast<LossCause>(slot.loss_cause.load(std::memory_order_relaxed)),
              slot.loss_value.load(std::memory_order_relaxed),
              slot.lost_at_ns.load(std::memory_order_relaxed)};
}

int64_t Member::silent_ms(int r) const noexcept { return watchdog_ ? watchdog_->silent_ms(r) : 0; }

void Member::declare_lost(int r, const Loss& loss) noexcept {
  RankSlot& slot = arena_->rank(r);
  int32_t alive = static_cast<int32_t>(RankState::alive);
  if (slot.state.compare_exchange_strong(alive, static_cast<int32_t>(RankState::reporting)))
    finish_report(r, loss);
}

void Member::finish_report(int r, const Loss& loss) noexcept {
  RankSlot& slot = arena_->rank(r);
  slot.loss_cause.store(static_cast<int32_t>(loss.cause), std::memory_order_relaxed);
  slot.loss_value.store(loss.value, std::memory_order_relaxed);
  slot.lost_at_ns.store(loss.at_ns, std::memory_order_relaxed);
  slot.state.store(static_cast<int32_t>(RankState::lost), std::memory_order_seq_cst);
  count_losses();
}

void Member::count_losses() noexcept {
  uint32_t lost = 0;
  for (int r = 0; r < size(); ++r) lost += loss(r) ? 1 : 0;
  std::atomic<uint32_t>& counted = arena_->header().losses;
  uint32_t before = counted.load(std::memory_order_relaxed);
  while (before < lost)
    if (counted.compare_exchange_weak(before, lost, std::memory_order_seq_cst)) {
      for (int i = 0; i < size(); ++i) ring(arena_->rank(i));
      return;
    }
}

void Member::register_thread() {
  if (last_registered == id_) return;
  last_registered = id_;
  for (const ThreadRegistrations::Registration& one : registrations.list)
    if (one.member.lock().get() == this) return;
  std::erase_if(registrations.list, [](const auto& one) { return one.member.expired(); });
  registrations.list.push_back({self_, now_ns()});
  const std::lock_guard lock(threads_mutex_);
  own().threads.fetch_add(1, std::memory_order_seq_cst);
  own().threads_ended_ns.store(0, std::memory_order_relaxed);
}

int64_t Member::registered_since() const {
  for (const ThreadRegistrations::Registration& one : registrations.list)
    if (one.member.lock().get() == this) return one.since_ns;
  return INT64_MAX;
}

void Member::unregister_thread() noexcept {
  if (forked()) return;
  const std::lock_guard lock(threads_mutex_);
  if (own().threads.fetch_sub(1, std::memory_order_seq_cst) == 1 && arena_->threads())
    own().threads_ended_ns.store(now_ns(), std::memory_order_release);
}

int Member::take_notice() {
  const std::lock_guard lock(threads_mutex_);
  for (int place = 0; place < kNotices; ++place)
    if (!std::exchange(notices_taken_[static_cast<size_t>(place)], true)) return place;
  return -1;
}

void Member::give_back_notice(int place) noexcept {
  std::atomic<uint64_t>& version = own().waits[place].version;
  const uint64_t seen = version.load(std::memory_order_relaxed);
  if ((seen & 1) != 0) version.store(seen + 1, std::memory_order_seq_cst);
  const std::lock_guard lock(threads_mutex_);
  notices_taken_[static_cast<size_t>(place)] = false;
}

}  // namespace gangway::host

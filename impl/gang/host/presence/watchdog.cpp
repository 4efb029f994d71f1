#include "gang/host/presence/watchdog.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstddef>
#include <cstring>
#include <string>

#include "base/error.h"
#include "base/process.h"
#include "gang/host/memory/futex.h"

namespace gangway::host {
namespace {

constexpr uint32_t kLeft = 0;  // the lock before the thread starts and after its clean end

// Returns how process `pid` is ending. /proc has its exit status from the moment when it begins to exit until
// it is reaped.
Loss cause_of_death(int pid, bool same_space) {
  Loss loss;
  loss.at_ns = now_ns();
  if (!same_space) return loss;
  constexpr int kExitCode = 52;
  const std::optional<int64_t> known = process_stat(pid, kExitCode);
  if (!known) return loss;
  const int status = static_cast<int>(*known);
  if ((status & 0x7f) != 0) {
    loss.cause = LossCause::signal;
    loss.value = status & 0x7f;
  } else {
    loss.cause = LossCause::exit;
    loss.value = status >> 8 & 0xff;
  }
  return loss;
}

}  // namespace

Watchdog::Watchdog(Member& member)
    : member_(member),
      liveness_ms_(member.arena().header().liveness_ms),
      tick_ns_((liveness_ms_ > 0 ? std::clamp<int64_t>(liveness_ms_ / 4, 5, 100) : 100) * 1'000'000),
      peers_(static_cast<size_t>(member.size())),
      polls_(peers_.size(), pollfd{-1, POLLIN, 0}) {
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);  // a caller's signal handlers never run on the watchdog
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::exception& error) {
    pthread_sigmask(SIG_SETMASK, &old, nullptr);
    fail(Code::gang, "host engine: no watchdog thread: ", error.what());
  }
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
  while (!ready_.load(std::memory_order_acquire)) sched_yield();
}

Watchdog::~Watchdog() {
  stop_.store(true, std::memory_order_seq_cst);
  // The thread sleeps on some rank's lock, or is about to. Wake the sleepers of every lock until the thread
  // has ended.
  while (!ended_.load(std::memory_order_acquire)) {
    for (int r = 0; r < member_.size(); ++r) futex_wake(member_.arena().rank(r).alive_lock, INT_MAX);
    sched_yield();
  }
  thread_.join();
  for (const Peer& peer : peers_)
    if (peer.pidfd >= 0) close(peer.pidfd);
}

void Watchdog::forget() noexcept {}

void Watchdog::run() {
  std::atomic<uint32_t>& word = member_.own().alive_lock;
  // The kernel's robust list of this thread, with a single entry. The offset leads from the entry to the
  // lock.
  struct Entry {
    Entry* next;
  };
  struct Head {
    Entry list;
    long offset;
    Entry* pending;
  } head{};
  Entry entry{&head.list};
  head.list.next = &entry;
  head.offset = reinterpret_cast<intptr_t>(&word) - reinterpret_cast<intptr_t>(&entry);
  const bool robust = syscall(SYS_set_robust_list, &head, sizeof head) == 0;
  const auto tid = static_cast<uint32_t>(syscall(SYS_gettid));
  word.store(tid | FUTEX_WAITERS, std::memory_order_seq_cst);
  ready_.store(true, std::memory_order_release);
  int64_t looked = now_ns();
  while (!stop_.load(std::memory_order_seq_cst)) {
    member_.own().heartbeat.fetch_add(1, std::memory_order_relaxed);
    const int next = next_alive();
    watch(next);
    if (now_ns() - looked >= tick_ns_ * 9 / 10) {
      look_around();
      looked = now_ns();
    }
  }
  word.store(kLeft, std::memory_order_seq_cst);
  futex_wake(word, INT_MAX);
  if (robust) {
    head.list.next = &head.list;
    syscall(SYS_set_robust_list, nullptr, sizeof head);
  }
  ended_.store(true, std::memory_order_release);
}

int Watchdog::next_alive() const {
  for (int i = 1; i < member_.size(); ++i) {
    const int r = (member_.rank() + i) % member_.size();
    if (member_.arena().rank(r).state.load(std::memory_order_acquire) ==
        static_cast<int32_t>(RankState::alive))
      return r;
  }
  return -1;
}

void Watchdog::watch(int next) {
  std::atomic<uint32_t>& word = next < 0 ? member_.own().alive_lock : member_.arena().rank(next).alive_lock;
  const uint32_t seen = word.load(std::memory_order_seq_cst);
  if (next >= 0 && (seen & FUTEX_OWNER_DIED) != 0) {
    member_.declare_lost(next, loss_of(next, /*dead=*/true));
    futex_wake(word, INT_MAX);  // the kernel wakes only one sleeper
    return;
  }
  if (stop_.load(std::memory_order_seq_cst)) return;
  futex_wait(word, seen, tick_ns_);
}

Loss Watchdog::loss_of(int r, bool dead) const {
  const RankSlot& slot = member_.arena().rank(r);
  if (!dead) return Loss{LossCause::silent, static_cast<int>(liveness_ms_), now_ns()};
  return cause_of_death(slot.pid.load(std::memory_order_relaxed), member_.shares_pids(r));
}

void Watchdog::look_around() {
  const int64_t now = now_ns();
  // If this process itself was stopped, the others' silence proves nothing.
  if (looked_ns_ != 0 && now - looked_ns_ > 2 * tick_ns_ + liveness_ms_ * 500'000)
    for (Peer& peer : peers_)
      if (peer.opened) peer.seen_ns.store(now, std::memory_order_relaxed);
  looked_ns_ = now;
  member_.count_losses();
  open_peers();
  poll_peers();
  for (int r = 0; r < member_.size(); ++r) {
    if (r == member_.rank()) continue;
    const RankSlot& slot = member_.arena().rank(r);
    Peer& peer = peers_[static_cast<size_t>(r)];
    const auto state = static_cast<RankState>(slot.state.load(std::memory_order_acquire));
    if (state != RankState::alive && state != RankState::reporting) continue;
    if (!peer.opened) continue;  // it has come just now
    const bool dead = is_dead(r);
    if (state == RankState::reporting) {
      // Without a liveness limit only dead ranks are reported.
      if (peer.half_lost) member_.finish_report(r, loss_of(r, dead || liveness_ms_ == 0));
      peer.half_lost = true;
      continue;
    }
    const uint64_t beat = slot.heartbeat.load(std::memory_order_relaxed);
    if (beat != peer.heartbeat) {
      peer.heartbeat = beat;
      peer.seen_ns.store(now, std::memory_order_relaxed);
    }
    const bool silent =
        liveness_ms_ > 0 && now - peer.seen_ns.load(std::memory_order_relaxed) > liveness_ms_ * 1'000'000;
    if (dead || silent) member_.declare_lost(r, loss_of(r, dead));
  }
}

void Watchdog::open_peers() {
  for (int r = 0; r < member_.size(); ++r) {
    Peer& peer = peers_[static_cast<size_t>(r)];
    const RankSlot& slot = member_.arena().rank(r);
    const auto state = static_cast<RankState>(slot.state.load(std::memory_order_acquire));
    if (r == member_.rank() || peer.opened || (state != RankState::alive && state != RankState::reporting))
      continue;
    peer.opened = true;
    peer.seen_ns.store(now_ns(), std::memory_order_relaxed);
    if (!member_.shares_pids(r)) continue;
    peer.pidfd = static_cast<int>(syscall(SYS_pidfd_open, slot.pid.load(std::memory_order_relaxed), 0));
    polls_[static_cast<size_t>(r)] = {peer.pidfd, POLLIN, 0};  // poll() leaves out a negative descriptor
  }
}

// Asks for all peers at once: with a call for each, the watchdogs of many ranks would take whole cores.
void Watchdog::poll_peers() {
  if (poll(polls_.data(), polls_.size(), 0) <= 0) return;
  for (size_t r = 0; r < peers_.size(); ++r)
    if ((polls_[r].revents & POLLIN) != 0) {
      peers_[r].ended = true;
      polls_[r].fd = -1;
    }
}

bool Watchdog::is_dead(int r) const {
  const RankSlot& slot = member_.arena().rank(r);
  const Peer& peer = peers_[static_cast<size_t>(r)];
  if (peer.ended || (slot.alive_lock.load(std::memory_order_seq_cst) & FUTEX_OWNER_DIED) != 0) return true;
  // The ring divides the work: each watchdog checks its next neighbour for a core dump.
  return peer.pidfd >= 0 && r == next_alive() && dumps_core(slot.pid.load(std::memory_order_relaxed));
}

int64_t Watchdog::silent_ms(int r) const noexcept {
  const int64_t seen = peers_[static_cast<size_t>(r)].seen_ns.load(std::memory_order_relaxed);
  return seen == 0 ? 0 : (now_ns() - seen) / 1'000'000;
}

}  // namespace gangway::host

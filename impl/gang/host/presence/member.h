// A rank's presence on its host: its slot in the arena, its watchdog thread, how it sleeps and is woken, and
// which ranks were lost. Each rank has one; all its engines on this host share it.
//
// Thread rule: any thread of the rank.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "gang/host/memory/arena.h"
#include "gang/host/memory/peer_reads.h"

namespace gangway::host {

int64_t now_ns() noexcept;  // by the clock that all processes of a host share
uint64_t pid_space();       // the PID namespace of this process, as a number

struct Loss {
  LossCause cause = LossCause::unknown;
  int value = 0;  // the signal, or the exit code
  int64_t at_ns = 0;
};

class Watchdog;

class Member {
 public:
  Member(std::shared_ptr<Arena> arena, int rank);
  ~Member();
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  // Marks this rank as alive. A process also starts its watchdog thread.
  void begin(const std::shared_ptr<Member>& self);

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(arena_->header().size); }
  Arena& arena() const { return *arena_; }
  const std::shared_ptr<Arena>& arena_ptr() const { return arena_; }
  const std::shared_ptr<Slice>& slice() const { return slice_; }
  PeerReads& peer_reads() { return peer_reads_; }
  const std::string& host() const { return host_; }
  bool crowded() const { return crowded_; }  // there are more ranks than cores
  bool forked() const { return arena_->forked(); }

  // Call it after a store that `r` may wait for. It is cheap when `r` does not sleep.
  void wake(int r) const noexcept {
    RankSlot& slot = arena_->rank(r);
    if (slot.sleeping.load(std::memory_order_seq_cst) != 0) ring(slot);
  }
  // Announces that this thread is about to sleep. After this call the thread must check its condition once
  // more; any change that this check does not see will ring the doorbell. Because of the membarrier in here,
  // wakers need no memory fence between their store and their load of `sleeping`.
  uint32_t prepare_sleep() const noexcept;
  void end_sleep() const noexcept { own().sleeping.fetch_sub(1, std::memory_order_seq_cst); }
  // Returns whether a process id of `r` names the same process here.
  bool shares_pids(int r) const {
    return arena_->rank(r).pid_space.load(std::memory_order_relaxed) ==
           own().pid_space.load(std::memory_order_relaxed);
  }
  bool uses_membarrier(int r) const {
    return arena_->rank(r).uses_membarrier.load(std::memory_order_acquire) != 0;
  }
  void wake_all() const noexcept;
  RankSlot& own() const { return arena_->rank(rank_); }
  // Sleeps until the doorbell rings again or `ns` nanoseconds have passed. `seen` is the result of
  // prepare_sleep(), after which the caller has checked its condition once more.
  void sleep(uint32_t seen, int64_t ns) const noexcept;

  uint32_t losses() const noexcept { return arena_->header().losses.load(std::memory_order_acquire); }
  std::optional<Loss> loss(int r) const;
  void declare_lost(int r, const Loss& loss) noexcept;
  // Completes the report of r's loss that another rank began. That rank may have died while it wrote the
  // report, or before it counted the loss.
  void finish_report(int r, const Loss& loss) noexcept;
  void count_losses() noexcept;
  // Returns for how long the process of `r` has not run, as far as this rank's watchdog has seen; 0 if ranks
  // are threads.
  int64_t silent_ms(int r) const noexcept;

  // Registers the calling thread as one that acts for this rank until it ends.
  void register_thread();
  int64_t registered_since() const;  // of the calling thread

  // Reserves an entry of own().waits for the calling thread. -1: all are in use. give_back_notice() clears
  // the entry.
  int take_notice();
  void give_back_notice(int place) noexcept;

 private:
  friend struct ThreadRegistrations;
  static void ring(RankSlot& slot) noexcept;
  void unregister_thread() noexcept;

  std::shared_ptr<Arena> arena_;
  std::shared_ptr<Slice> slice_;
  PeerReads peer_reads_;
  const int rank_;
  const uint64_t id_;
  std::string host_;
  bool crowded_ = false;
  // Guards own().threads, own().threads_ended_ns, which depends on it, and the list of notices.
  std::mutex threads_mutex_;
  std::array<bool, kNotices> notices_taken_{};
  std::weak_ptr<Member> self_;
  std::unique_ptr<Watchdog> watchdog_;
};

}  // namespace gangway::host

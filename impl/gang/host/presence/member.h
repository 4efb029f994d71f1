// A rank's presence on its host: its slot on the arena, its watchdog thread, waking and sleeping, who was lost.
// One per rank; all its engines on this host share it.
//
// Thread rule: any thread of the rank.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "gang/host/memory/arena.h"

namespace gangway::host {

int64_t now_ns() noexcept;  // of the clock that all processes of a host share
uint64_t pid_space();       // where this process's id means something

struct Loss {
  LossCause cause = LossCause::unknown;
  int value = 0;  // signal, or exit code
  int64_t at_ns = 0;
};

class Watchdog;

class Member {
 public:
  Member(std::shared_ptr<Arena> arena, int rank);
  ~Member();
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  // Marks this rank as alive; processes get their watchdog thread.
  void begin(const std::shared_ptr<Member>& self);

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(arena_->header().size); }
  Arena& arena() const { return *arena_; }
  const std::shared_ptr<Arena>& arena_ptr() const { return arena_; }
  const std::shared_ptr<Slice>& slice() const { return slice_; }
  const std::string& host() const { return host_; }
  bool crowded() const { return crowded_; }  // more ranks than cores
  bool forked() const { return arena_->forked(); }

  // After a store that `r` may wait for. Cheap when it does not sleep.
  void wake(int r) const noexcept {
    RankSlot& slot = arena_->rank(r);
    if (slot.sleeping.load(std::memory_order_seq_cst) != 0) ring(slot);
  }
  // Says that this thread is about to sleep; what it looks at after this cannot have been missed by those
  // that wake. membarrier here lets wakers do without a fence between their store and their look at
  // `sleeping`.
  uint32_t prepare_sleep() const noexcept;
  void end_sleep() const noexcept { own().sleeping.fetch_sub(1, std::memory_order_seq_cst); }
  // Do process ids of `r` mean the same here?
  bool shares_pids(int r) const {
    return arena_->rank(r).pid_space.load(std::memory_order_relaxed) ==
           own().pid_space.load(std::memory_order_relaxed);
  }
  bool uses_membarrier(int r) const {
    return arena_->rank(r).uses_membarrier.load(std::memory_order_acquire) != 0;
  }
  void wake_all() const noexcept;
  // Sleeps until the doorbell rings again or `ns` have passed; the caller read `seen` and looked once more in
  // between.
  RankSlot& own() const { return arena_->rank(rank_); }
  void sleep(uint32_t seen, int64_t ns) const noexcept;

  uint32_t losses() const noexcept { return arena_->header().losses.load(std::memory_order_acquire); }
  std::optional<Loss> loss(int r) const;
  void declare_lost(int r, const Loss& loss) noexcept;
  // The writer of a report may end at it: another one ends `r`'s, or counts what stands there.
  void finish_report(int r, const Loss& loss) noexcept;
  void count_losses() noexcept;

  // Says that the calling thread acts for this rank until it ends.
  void register_thread();
  int64_t registered_since() const;  // by the calling thread

  // A place of own().waits for the calling thread; -1: none is free. give_back_notice() clears it.
  int take_notice();
  void give_back_notice(int place) noexcept;

 private:
  friend struct ThreadRegistrations;
  static void ring(RankSlot& slot) noexcept;
  void unregister_thread() noexcept;

  std::shared_ptr<Arena> arena_;
  std::shared_ptr<Slice> slice_;
  const int rank_;
  const uint64_t id_;
  std::string host_;
  bool crowded_ = false;
  std::mutex threads_mutex_;  // own().threads and the mark that follows from it change together
  std::array<bool, kNotices> notices_taken_{};
  std::weak_ptr<Member> self_;
  std::unique_ptr<Watchdog> watchdog_;
};

}  // namespace gangway::host

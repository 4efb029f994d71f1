// Reads of another rank's own memory through the kernel (process_vm_readv(2)): one copy, where memory
// outside of the arena is otherwise copied into it and out of it. The kernel may refuse that (containers, a
// ptrace scope, another user), so every rank first tries to read a word of every other, and the gang does
// it only where all could.
//
// A process that ends leaves its number to another one. So each read also reads the owner's word, at whose
// place no other process has the same value; both come from one address space, because the kernel looks it
// up once.
//
// Thread rule: any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "gang/host/memory/arena.h"

namespace gangway::host {

class PeerReads {
 public:
  PeerReads(Arena& arena, int rank);

  // Publishes this rank's word, for the others to try.
  void publish();
  // Returns whether every rank can read every other's memory. False until all have tried.
  bool allowed() noexcept {
    const State known = state_.load(std::memory_order_acquire);
    return known == State::unknown ? find_out() : known == State::yes;
  }
  // Copies from an address of rank `r`. Ended: there is no such process any more. Absent: it has no such
  // memory, or none that the kernel reads. Denied: the kernel does not allow it any more, for example since
  // that process has changed its user.
  enum class Result { copied, ended, absent, denied };
  Result read(int r, uint64_t address, void* to, size_t bytes) const;

 private:
  enum class State { unknown, yes, no };
  enum : uint32_t { kNotTried = 0, kReads = 1, kCannot = 2 };  // RankSlot::reads_peers

  bool find_out() noexcept;
  void try_all() noexcept;

  Arena& arena_;
  const int rank_;
  uint64_t word_;
  std::atomic<State> state_;
  std::mutex mutex_;  // guards has_tried_
  bool has_tried_ = false;
};

}  // namespace gangway::host

// The memory that the ranks of a communicator share: a header, a seat for each rank, a mailbox for each pair
// of ranks, and a slot of data for each seat and mailbox. Everything that changes is atomic and there are no
// locks, because a rank may be killed at any point.
//
// The segment has no name. The process that makes an id owns a file of memory, which the others open through
// /proc. So nothing stays behind, however processes end. A rank that comes after that process has ended finds
// nothing.
//
// Thread rule: any thread of any process.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include <nccl.h>

namespace gpu_emulation {

constexpr size_t kSlot = 256 * 1024;  // the bytes of a chunk
constexpr int kMostLaunches = 64;     // the number of communicators of a device whose order is compared
constexpr size_t kMostWindows = 512;  // a rank may be so many registrations ahead of another

// How many collectives a device had launched on another communicator. Devices that launch their shared
// communicators in the same order have equal counts.
struct Launches {
  uint64_t communicator, count;
};

// The description of a collective for the peers.
struct Notice {
  int op, type, reduce, root;
  uint64_t count;
  uint64_t in_place, out_place;  // in registered memory
  int others;
  Launches launches[kMostLaunches];
};

struct Seat {
  std::atomic<int> device;             // the number + 1; 0: not joined
  std::atomic<uint64_t> host;          // of the device: the number of its network namespace
  std::atomic<uint64_t> staged, read;  // chunks that were put into the slot; read from all slots
  std::atomic<bool> left;              // the rank has finalized, destroyed or aborted its communicator
  std::atomic<uint64_t> windows;       // that the rank has registered
  std::atomic<uint64_t> window_histories[kMostWindows];  // after each of them
  Notice notice;                                         // describes the last staged chunk
};

struct Mailbox {
  std::atomic<uint64_t> posted, taken;  // numbers of chunks
  uint64_t bytes;                       // of the whole message
};

class Segment {
 public:
  static ncclUniqueId make_id();
  // Returns the process's segment for this id, or null if there is none of this size.
  static std::shared_ptr<Segment> open(const ncclUniqueId& id, int size);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  uint64_t id() const { return head_->id; }
  int size() const { return size_; }
  Seat& seat(int rank) const { return seats_[rank]; }
  Mailbox& mailbox(int from, int to) const { return mailboxes_[from * size_ + to]; }
  char* slot(int rank) const { return slots_ + static_cast<size_t>(rank) * kSlot; }
  char* slot(int from, int to) const {
    return slots_ + static_cast<size_t>(size_ + from * size_ + to) * kSlot;
  }
  bool broken() const { return head_->broken; }
  void set_broken() {
    head_->broken = true;
    changed();
  }
  // Wakes all waiting ranks. They see all changes before this call.
  void changed();
  uint32_t changes() const { return head_->changes; }
  // Sleeps for a short time, unless changes() differs from `seen`.
  void sleep(uint32_t seen) const;
  // If this process made the id, closes its file. Ranks that come later find nothing.
  void forget() const;

 private:
  struct Head {
    uint64_t id;
    std::atomic<int> size;
    std::atomic<uint32_t> changes;
    std::atomic<bool> broken;
  };

  Segment(void* memory, size_t bytes, int size);

  Head* const head_;
  const size_t bytes_;
  const int size_;
  Seat* seats_;
  Mailbox* mailboxes_;
  char* slots_;
};

}  // namespace gpu_emulation

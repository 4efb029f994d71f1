// What the ranks of a communicator share: a header, a seat for each rank, a mailbox for each pair, and a slot of data for
// each seat and mailbox. All that changes is atomic, and no rank ever holds a lock: one may be killed at any point.
//
// The segment has no name: the process that makes an id holds a file of memory, which the others open through /proc. So
// nothing stays behind, however processes end; and a rank that comes after that process has gone finds nothing.
//
// Thread rule: any thread of any process.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include <nccl.h>

namespace gpu_emulation {

constexpr size_t kSlot = 256 * 1024;  // bytes of a chunk
constexpr int kMostLaunches = 64;     // communicators of a device whose order is compared

// How often a device had launched on another communicator: devices that launch what they share in one order count alike.
struct Launches {
  uint64_t communicator, count;
};

// A collective as peers see it.
struct Notice {
  int op, type, reduce, root;
  uint64_t count;
  int others;
  Launches launches[kMostLaunches];
};

struct Seat {
  std::atomic<int> device;             // + 1; 0: not joined
  std::atomic<uint64_t> staged, read;  // chunks of collectives: in the slot, and out of all slots
  Notice notice;                       // of the chunk that was staged last
};

struct Mailbox {
  std::atomic<uint64_t> posted, taken;  // chunks
  uint64_t bytes;                       // of the whole message
};

class Segment {
 public:
  static ncclUniqueId make_id();
  // One for each process. Null: there is none for this id and size.
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
  // Wakes all who wait; what changed before is seen by them.
  void changed();
  uint32_t changes() const { return head_->changes; }
  // Sleeps, not for long, unless something changed since.
  void sleep(uint32_t seen) const;
  // The process that made the id gives its hold up; peers that come later find nothing.
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

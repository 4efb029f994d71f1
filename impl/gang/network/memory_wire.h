// The way to one peer of the same host: a ring of bytes in shared memory for each direction, in place of the
// data connection. That connection stays open beside the rings. It carries a byte that wakes a peer which
// sleeps (a bell), and its end is the end of the peer.
//
// The writer copies bytes in and moves `written` on; the reader copies them out, or folds them where they
// lie, and moves `read` on. So no byte is overwritten before it was read, and a process that dies in the
// middle of a copy has published nothing of it.
//
// Thread rule: each side under the mutex of its network. The two sides run at the same time.
#pragma once

#include <sys/uio.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

namespace gangway::network {

class HostMemory;

constexpr size_t kRingBytes = 1 << 20;  // four chunks, which the caches of two cores hold

// One direction of a pair of ranks, in shared memory that begins as zeros.
struct MemoryLane {
  alignas(64) std::atomic<uint64_t> written;
  std::atomic<uint64_t> ring;          // where the bytes lie; 0: the writer has not made them yet
  std::atomic<uint32_t> writer_waits;  // the writer wants a bell when half of the ring is free
  alignas(64) std::atomic<uint64_t> read;
  std::atomic<uint32_t> reader_waits;  // the reader wants a bell when there is something to read
};

class MemoryWire {
 public:
  // `out` is the lane to the peer, `in` the lane from it.
  MemoryWire(std::shared_ptr<HostMemory> memory, MemoryLane& out, MemoryLane& in)
      : memory_(std::move(memory)), out_(out), in_(in) {}
  MemoryWire(const MemoryWire&) = delete;
  MemoryWire& operator=(const MemoryWire&) = delete;

  // Makes the ring to the peer, once. Throws OUT_OF_MEMORY. To call before the first write(). It stays until
  // the last rank of the host has ended, as the peer may still read from it when this one has left.
  void open();
  // Each copies as much as it can and returns the number of bytes. Throws CORRUPT if the lane holds what no
  // peer writes.
  size_t write(std::span<const iovec> parts);
  size_t read(std::span<const iovec> parts);
  // The next bytes that have come, as far as they lie in one stretch, and at most `most`. They stay in the
  // ring until drop(). Throws CORRUPT like read().
  std::span<const char> front(size_t most);
  void drop(size_t bytes);

  bool has_bytes() const { return in_.written.load(std::memory_order_acquire) != read_; }
  bool has_room() const { return free_bytes() >= kRingBytes / 2; }
  // Before this process sleeps: asks for a bell. Returns whether there is already what it would sleep for.
  bool asks_for_bytes() { return asks(in_.reader_waits) && has_bytes(); }
  bool asks_for_room() { return asks(out_.writer_waits) && has_room(); }
  // Returns whether the peer has asked for a bell since the last call, and has a reason to get it.
  bool owes_bell() { return std::exchange(owes_bell_, false); }

 private:
  static bool asks(std::atomic<uint32_t>& waits) {
    waits.store(1, std::memory_order_seq_cst);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    return true;
  }
  size_t free_bytes() const {
    return kRingBytes - static_cast<size_t>(written_ - out_.read.load(std::memory_order_acquire));
  }
  size_t came();  // bytes that have come and were not read
  void ring_if_asked(std::atomic<uint32_t>& waits);

  const std::shared_ptr<HostMemory> memory_;
  MemoryLane& out_;
  MemoryLane& in_;
  char* out_ring_ = nullptr;
  const char* in_ring_ = nullptr;
  uint64_t written_ = 0, read_ = 0;
  bool owes_bell_ = false;
};

}  // namespace gangway::network

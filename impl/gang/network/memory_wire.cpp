#include "gang/network/memory_wire.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "gang/network/host_memory.h"

namespace gangway::network {
namespace {

// Copies between a ring, from byte `at` on, and memory. `copy(ring, memory, bytes)` copies one stretch.
template <typename Byte, typename Copy>
size_t move_parts(std::span<const iovec> parts, Byte* ring, uint64_t at, size_t most, Copy&& copy) {
  size_t done = 0;
  for (const iovec& part : parts) {
    for (size_t moved = 0; moved < part.iov_len && done < most;) {
      const auto place = static_cast<size_t>((at + done) % kRingBytes);
      const size_t bytes = std::min({part.iov_len - moved, most - done, kRingBytes - place});
      copy(ring + place, static_cast<char*>(part.iov_base) + moved, bytes);
      moved += bytes;
      done += bytes;
    }
  }
  return done;
}

}  // namespace

void MemoryWire::open() {
  if (out_ring_ != nullptr) return;
  const uint64_t ring = memory_->allocate(kRingBytes);
  out_ring_ = memory_->at(ring, kRingBytes);
  out_.ring.store(ring, std::memory_order_release);
}

size_t MemoryWire::write(std::span<const iovec> parts) {
  const size_t room = free_bytes();
  if (room > kRingBytes) fail(Code::corrupt, "it has read more than was written");
  const size_t done =
      move_parts(parts, out_ring_, written_, room,
                 [](char* to, const char* from, size_t bytes) { std::memcpy(to, from, bytes); });
  if (done == 0) return 0;
  written_ += done;
  out_.written.store(written_, std::memory_order_release);
  ring_if_asked(out_.reader_waits);
  return done;
}

size_t MemoryWire::came() {
  const uint64_t there = in_.written.load(std::memory_order_acquire) - read_;
  if (there == 0) return 0;
  if (in_ring_ == nullptr) in_ring_ = memory_->at(in_.ring.load(std::memory_order_acquire), kRingBytes);
  if (there > kRingBytes || in_ring_ == nullptr) fail(Code::corrupt, "its shared memory is not a ring");
  return static_cast<size_t>(there);
}

size_t MemoryWire::read(std::span<const iovec> parts) {
  const size_t there = came();
  if (there == 0) return 0;
  const size_t done = move_parts(parts, in_ring_, read_, there, [](const char* from, char* to, size_t bytes) {
    std::memcpy(to, from, bytes);
  });
  drop(done);
  return done;
}

std::span<const char> MemoryWire::front(size_t most) {
  const size_t there = came();
  const auto place = static_cast<size_t>(read_ % kRingBytes);
  return {in_ring_ + place, std::min({there, most, kRingBytes - place})};
}

// The writer is rung if this makes half of the ring free.
void MemoryWire::drop(size_t bytes) {
  read_ += bytes;
  in_.read.store(read_, std::memory_order_release);
  if (in_.written.load(std::memory_order_relaxed) - read_ <= kRingBytes / 2) ring_if_asked(in_.writer_waits);
}

// The fence orders the position, which the caller has moved on, before the look at `waits`. The peer does the
// same the other way round in asks(), so one of the two sees the other.
void MemoryWire::ring_if_asked(std::atomic<uint32_t>& waits) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (waits.load(std::memory_order_relaxed) != 0 && waits.exchange(0, std::memory_order_seq_cst) != 0)
    owes_bell_ = true;
}

}  // namespace gangway::network

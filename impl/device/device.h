// The device layer. Belongs here: memory, copies, streams, events, a rank's threads, one folder a kind of device. Does
// not: what lies in the memory (tensor), what computes on it (ops).
//
// What a piece of hardware must give: memory, copies, streams and events. One Device object per rank (ranks may be
// threads of one process), found by name in the registry below.
//
// Thread rule: a Device, its Streams and its Allocators are used by one thread at a time, except that blocks may be
// freed from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/error.h"

namespace gangway {

// DLPack's numbers, but for meta. `extension`: a kind that was registered from outside (register_device).
enum class DeviceKind : int32_t { cpu = 1, cuda = 2, extension = 12, meta = 100 };

// Where a block of memory lies. Host code reads and writes the first three; the others only through copies.
enum class MemoryKind : uint8_t { host, pinned, gang_shared, device, meta };

constexpr bool is_on_host(MemoryKind kind) {
  return kind == MemoryKind::host || kind == MemoryKind::pinned || kind == MemoryKind::gang_shared;
}

class Device;
class Stream;

// A point on a stream, made by Device::make_event and used again and again. Before the first record() it is done.
class Event {
 public:
  virtual ~Event() = default;
  virtual void record(Stream& stream) = 0;  // the point after everything that the stream holds now
  virtual bool done() = 0;                  // never blocks
  virtual void wait() = 0;                  // blocks the calling thread
};

// An ordered queue of work. A CPU stream runs everything at once on the calling thread, so events on it are always done.
// Copies, operations and collectives take the stream that they are ordered on; two streams are ordered by events alone.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual Device& device() = 0;
  virtual void wait(Event& event) = 0;  // later work waits for the point that was recorded last
  virtual void synchronize() = 0;  // blocks the calling thread until everything has run; throws what failed
  virtual void* native() = 0;      // cudaStream_t and the like; null on a CPU
  // Starts what the stream has kept back to start it together with more. Every other use of the stream does so by itself;
  // work that a caller puts on native() later, which the stream cannot see, needs this call before it.
  virtual void submit() {}
};

enum class StreamPriority : uint8_t { normal, high };

// One allocated block. Freed through its Allocator by ~Buffer (tensor/buffer.h).
struct Block {
  void* data = nullptr;  // null on meta and for 0 bytes
  size_t bytes = 0;
  uint64_t token = 0;  // the allocator's own
};

// Source of blocks of one MemoryKind. Implemented to the right (device, gang), handed to Buffer, Parameter and arenas.
// Blocks are aligned to 64 bytes. Held by shared_ptr from every live block's Buffer. free() works from any thread; work
// that the device's streams hold by then may still use the block.
class Allocator {
 public:
  virtual ~Allocator() = default;
  virtual Device& device() = 0;
  virtual MemoryKind kind() const = 0;
  virtual Block allocate(size_t bytes) = 0;  // contents undefined; Error{out_of_memory} with the numbers
  virtual void free(const Block& block) noexcept = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual DeviceKind kind() const = 0;
  virtual int index() const = 0;
  virtual std::string name() const = 0;  // "cpu", "cuda:0", "meta"

  // The rank's own stream.
  virtual Stream& stream() = 0;
  // A further one, to run beside it. The device outlives it.
  virtual std::unique_ptr<Stream> make_stream(StreamPriority priority) = 0;
  // The Stream of a caller's native one (cudaStream_t and the like), which lives as long as the device. Null is the
  // rank's own. INVALID_ARGUMENT where the device has no native streams.
  virtual Stream& wrap_stream(void* native) = 0;
  // Later work on a caller's native stream comes after all that the device's streams hold by now. Null and refusals: as
  // wrap_stream, but nothing is kept of the native stream, which may go at any time.
  virtual void order(void* native) = 0;
  virtual std::unique_ptr<Event> make_event() = 0;

  virtual MemoryKind memory_kind() const = 0;          // of allocator()
  virtual std::shared_ptr<Allocator> allocator() = 0;  // this device's plain memory
  // Memory of the host that copies reach without a detour; on a CPU its plain memory.
  virtual std::shared_ptr<Allocator> pinned_allocator() = 0;
  // Can work of this device read and write there? False: plain memory of the host, or memory of another device.
  virtual bool reaches(const void*) const { return true; }
  // Both blocks stay until the copy has run; either may be host memory.
  virtual void submit() {}  // Stream::submit of all its streams
  virtual void copy(void* to, const void* from, size_t bytes, Stream& stream) = 0;
  virtual void zero(void* to, size_t bytes, Stream& stream) = 0;
};

struct DeviceOptions {
  int index = 0;
  // CPU: threads of the rank's pool, the caller's among them; 0: Config::num_threads, else 1.
  int threads = 0;
};

// `name`: "cpu", "meta", "cuda" (device options.index), "cuda:N" (device N) or a registered name. NOT_SUPPORTED says what CUDA
// is missing; any other name is INVALID_ARGUMENT.
std::shared_ptr<Device> make_device(const std::string& name, const DeviceOptions& options = {});

// A further kind of device, by the part of its name before a colon. Its factory gets the whole name. Any thread; once a
// name.
using DeviceFactory = std::shared_ptr<Device> (*)(const std::string& name, const DeviceOptions& options);
void register_device(const std::string& name, DeviceFactory factory);

}  // namespace gangway

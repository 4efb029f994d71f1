// The device layer. Belongs here: memory, copies, streams, events, a rank's threads, one folder for each kind
// of device. Does not belong here: what lies in the memory (tensor), what computes on it (ops).
//
// A Device is what a piece of hardware must give: memory, copies, streams and events. Each rank has one
// Device object (ranks may be threads of one process). make_device finds it by name.
//
// Thread rule: a Device, its Streams and its Allocators are used by one thread at a time, except that blocks
// may be freed from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/error.h"

namespace gangway {

// DLPack's numbers, except meta. `extension` is a kind that was registered from outside (register_device).
enum class DeviceKind : int32_t { cpu = 1, cuda = 2, extension = 12, meta = 100 };

// Where a block of memory lies. Host code may access the first three kinds directly, and the others only
// through copies.
enum class MemoryKind : uint8_t { host, pinned, gang_shared, device, meta };

constexpr bool is_on_host(MemoryKind kind) {
  return kind == MemoryKind::host || kind == MemoryKind::pinned || kind == MemoryKind::gang_shared;
}

class Device;
class Stream;

// A point on a stream. Device::make_event makes an event, which can be recorded many times. Before the first
// record(), it is done.
class Event {
 public:
  virtual ~Event() = default;
  virtual void record(Stream& stream) = 0;  // the point after everything that the stream holds now
  virtual bool done() = 0;                  // never blocks
  virtual void wait() = 0;                  // blocks the calling thread
};

// An ordered queue of work. A CPU's stream runs everything at once on the calling thread, so events on it are
// always done. Copies, operations and collectives take the stream on which they are ordered. Only events
// order two streams.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual Device& device() = 0;
  virtual void wait(Event& event) = 0;  // later work waits for the event's latest record()
  virtual void synchronize() = 0;  // blocks the calling thread until all work has run; throws what failed
  virtual void* native() = 0;      // cudaStream_t and the like; null on a CPU
  // Starts the work that the stream has held back so as to start it together with later work. Every other use
  // of the stream does so by itself. Only a caller who puts work on native() must call this first, since the
  // stream cannot see that work.
  virtual void submit() {}
};

enum class StreamPriority : uint8_t { normal, high };

// One allocated block. ~Buffer (tensor/tensor.h) frees it through its Allocator.
struct Block {
  void* data = nullptr;  // null on meta and for 0 bytes
  size_t bytes = 0;
  uint64_t token = 0;  // for the allocator's own use
};

// A source of blocks of one MemoryKind, aligned to 64 bytes. The device and gang layers implement it; Buffer,
// Parameter and arenas take it. Every live block's Buffer holds the allocator by shared_ptr. free() may be
// called from any thread, and work that the device's streams hold at that time may still use the block.
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

  // The rank's main stream.
  virtual Stream& stream() = 0;
  // Makes another stream, whose work may run beside that of stream(). The device must outlive it.
  virtual std::unique_ptr<Stream> make_stream(StreamPriority priority) = 0;
  // Returns the Stream for a caller's native one (cudaStream_t and the like), which must live as long as the
  // device. Null stands for stream(). INVALID_ARGUMENT where the device has no native streams.
  virtual Stream& wrap_stream(void* native) = 0;
  // Orders later work on a caller's native stream after all that the device's streams hold now. Null and
  // errors are as in wrap_stream. The device keeps no reference to the native stream, which may be destroyed
  // at any time.
  virtual void order(void* native) = 0;
  virtual std::unique_ptr<Event> make_event() = 0;

  virtual MemoryKind memory_kind() const = 0;          // the kind of allocator()
  virtual std::shared_ptr<Allocator> allocator() = 0;  // this device's plain memory
  // Host memory that the device copies to and from directly; on a CPU its plain memory.
  virtual std::shared_ptr<Allocator> pinned_allocator() = 0;
  // Returns whether work of this device can read and write at the address. False for plain memory of the host
  // and for memory of another device.
  virtual bool reaches(const void*) const { return true; }
  // Calls Stream::submit of all the device's streams.
  virtual void submit() {}
  // The caller keeps both blocks until the copy has run. Either may be host memory.
  virtual void copy(void* to, const void* from, size_t bytes, Stream& stream) = 0;
  virtual void zero(void* to, size_t bytes, Stream& stream) = 0;
};

struct DeviceOptions {
  int index = 0;
  // CPU: the number of threads in the rank's pool, of which the caller is one. 0 means Config::num_threads,
  // or 1 if that is 0 too.
  int threads = 0;
};

// `name` is "cpu", "meta" (plans; "meta:cuda" for GPUs), "cuda" (options.index), "cuda:N" or a registered
// name.
// NOT_SUPPORTED: CUDA cannot be used; the text says what is missing. INVALID_ARGUMENT: the name is unknown.
std::shared_ptr<Device> make_device(const std::string& name, const DeviceOptions& options = {});

// Registers another kind of device under the part of its name before a colon. The factory gets the whole
// name. May be called from any thread, once for each name.
using DeviceFactory = std::shared_ptr<Device> (*)(const std::string& name, const DeviceOptions& options);
void register_device(const std::string& name, DeviceFactory factory);

}  // namespace gangway

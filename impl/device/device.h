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

enum class DeviceKind : int32_t { cpu = 1, cuda = 2, meta = 100 };  // cpu and cuda are DLPack's numbers

// Where a block of memory lies.
enum class MemoryKind : uint8_t { host, pinned, gang_shared, device, meta };

class Device;
class Stream;

// A point on a stream. done() never blocks; wait() blocks the calling thread.
class Event {
 public:
  virtual ~Event() = default;
  virtual bool done() = 0;
  virtual void wait() = 0;
};

// An ordered queue of work. A CPU stream runs everything at once on the calling thread, so its events are done when
// they are made.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual Device& device() = 0;
  virtual std::unique_ptr<Event> record() = 0;  // an event after everything enqueued so far
  virtual void wait(Event& event) = 0;          // later work waits for the event
  virtual void synchronize() = 0;
  virtual void* native() = 0;  // cudaStream_t and the like; null on a CPU
};

// One allocated block. Freed through its Allocator by ~Buffer (tensor/buffer.h).
struct Block {
  void* data = nullptr;  // null on meta and for 0 bytes
  size_t bytes = 0;
  uint64_t token = 0;  // the allocator's own
};

// Source of blocks of one MemoryKind. Implemented to the right (device, gang), handed to Buffer, Parameter and arenas.
// Blocks are aligned to 64 bytes. Held by shared_ptr from every live block's Buffer. free() works from any thread.
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

  // The rank's own stream: what a null stream of the C ABI means.
  virtual Stream& stream() = 0;
  virtual std::shared_ptr<Allocator> allocator() = 0;  // this device's plain memory
  virtual void copy(void* to, const void* from, size_t bytes, Stream& stream) = 0;
  virtual void zero(void* to, size_t bytes, Stream& stream) = 0;
};

struct DeviceOptions {
  int index = 0;
  // CPU: threads of the rank's pool, the caller's among them; 0: Config::num_threads, else 1.
  int threads = 0;
};

// "cpu" or "meta"; "cuda" is NOT_SUPPORTED with what is missing; anything else INVALID_ARGUMENT.
std::shared_ptr<Device> make_device(const std::string& name, const DeviceOptions& options = {});

}  // namespace gangway

// The memory that the ranks of one host share in a gang over several hosts: an arena of the host engine, made
// by the host's first rank and handed to the others over an abstract Unix socket. It holds the lanes between
// each two of these ranks and the rings of those that exchange data (memory_wire.h). It is a memfd, so that
// nothing of it stays behind when the last rank has ended, however that ends.
//
// host_memory.cpp is the one file of the network that knows the host engine.
//
// Thread rule: share() blocks the calling thread, and calls its interrupt hook; the rest from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "gang/descriptor.h"
#include "gang/engine_options.h"
#include "gang/network/memory_wire.h"

namespace gangway::network {

class Meeting;
struct Place;

// Opens the socket at which a rank hands the memory to others. Each rank does so before it says its place.
Descriptor open_memory_door(const Place& own);

class HostMemory {
 public:
  // Collective over the ranks of this host, after they know all places. Null: this rank is alone on its host.
  // Throws PEER_LOST if one of them has died, OUT_OF_MEMORY, and TIMEOUT at the meeting's deadline.
  static std::shared_ptr<HostMemory> share(Meeting& meeting, const EngineOptions& options);
  ~HostMemory();

  // Returns the way to a rank of the gang, or null if it is on another host.
  static std::unique_ptr<MemoryWire> wire_to(const std::shared_ptr<HostMemory>& memory, int rank);

  // --- for MemoryWire ---
  uint64_t allocate(size_t bytes);                // throws OUT_OF_MEMORY
  char* at(uint64_t offset, size_t bytes) const;  // null: not inside the memory

 private:
  struct Parts;
  explicit HostMemory(std::unique_ptr<Parts> parts);
  const std::unique_ptr<Parts> parts_;
};

}  // namespace gangway::network

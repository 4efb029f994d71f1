// Engines by name. The only file that includes an engine's own header.
// Thread rule: any thread; what is made has its own rule.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gang/engine.h"
#include "gang/rank.h"
#include "gang/store.h"

namespace gangway {

struct EngineOptions {
  int rank = 0;
  int size = 1;
  int64_t timeout_ms = 15 * 60 * 1000;
  int64_t liveness_ms = 0;
  uint64_t arena_bytes = 0;   // 0: default reserve
  uint64_t memory_limit = 0;  // 0: default limit
  bool high_priority = false;
  std::string label = "gang";  // names the gang in errors
};

// Pure: refuses an engine's name as make_engine would, before anybody connects.
void check_engine(const std::string& engine, int size);

// Do ranks of this engine meet at a store? Collective over all ranks for "mpi": not if they are on several hosts.
bool needs_store(const std::string& engine, int size);

// `engine`: "auto" (size 1: self; else host), "self", "host", "mpi", "fake". NOT_SUPPORTED for gloo, nccl, an MPI that is
// not here, and for ranks on several hosts but with "mpi"; INVALID_ARGUMENT for an unknown name. Collective over the
// store, or over MPI without one.
std::shared_ptr<Engine> make_engine(const std::string& engine, const std::shared_ptr<Rank>& rank,
                                    const EngineOptions& options, const std::shared_ptr<Store>& store);

// Engines of `size` ranks that are threads of this process, one per element; local.
std::vector<std::shared_ptr<Engine>> make_thread_engines(const std::vector<std::shared_ptr<Rank>>& ranks,
                                                         const EngineOptions& options);

// Makes the engines that move memory of one kind of device, for those ranks of a gang that this process holds (its own,
// or all when ranks are threads). `control`: the engines of the same ranks over host memory, in the same order. Each is
// put beside its control engine (dual_engine.h), whose rank and size it has.
using DataEngines = std::vector<std::shared_ptr<Engine>> (*)(const std::vector<std::shared_ptr<Rank>>& ranks,
                                                             std::span<const std::shared_ptr<Engine>> control,
                                                             const EngineOptions& options);
// What the module of an accelerator calls. Any thread.
void register_data_engines(DeviceKind kind, DataEngines make);

// No communication: acts as if every rank held the caller's data. `record`: keeps every collective for
// recorded(). Any rank and size, also on meta (the public factory refuses meta, not this one).
std::shared_ptr<Engine> make_fake_engine(const std::shared_ptr<Rank>& rank, const EngineOptions& options,
                                         bool record);

}  // namespace gangway

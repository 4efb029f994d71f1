// Engines by name: one row for each name that a caller may give. The only unit that includes an engine's own
// header.
//
// Thread rule: any thread; each engine that is made here has its own rule.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gang/engine.h"
#include "gang/engine_options.h"
#include "gang/rank.h"
#include "gang/rendezvous/store.h"

namespace gangway {

// The properties of an engine by its name. Callers read a property, and never compare names.
struct EngineRow {
  const char* name = nullptr;
  // Why the name cannot be chosen for a gang whose ranks are processes: `refusal` continues the words `engine
  // "name"`. Null: it can be chosen.
  const char* refusal = nullptr;
  Code refusal_code = Code::invalid_argument;
  bool holds_one_rank_only = false;
  bool simulates_peers = false;  // one process acts for all ranks
  bool holds_threads = false;    // ranks may be threads of one process
  bool shares_host = false;      // all ranks must be on one host
  bool uses_network = false;     // sockets are used on one host, too
  // Set if the program's launcher (MPI) has connected the ranks already, so that they need no store.
  struct Launcher {
    bool (*shares_host)();                              // collective: whether all ranks run on one host
    void (*check_place)(const EngineOptions& options);  // refuses a rank or size that is not the launcher's
    std::shared_ptr<Engine> (*make_data)(const EngineOptions& options);
  };
  const Launcher* launcher = nullptr;
};

// Returns the row of the engine. Local. For an unknown name it is a row that refuses.
const EngineRow& engine_row(const std::string& name);

// Refuses the engine as make_engine would, but before any rank connects. Local. `name` is the name that the
// caller gave.
void check_engine(const EngineRow& row, const std::string& name, int size);

// Returns whether the ranks of this engine meet at a store. If a launcher has connected the ranks, the call
// is collective over them, and returns false if they run on several hosts.
bool needs_store(const EngineRow& row, int size);

// Makes the engine of a rank that is a process: "self" for one rank; else "host" where all ranks share a host,
// and "network" where they do not, with the launcher's data engine if the row has a launcher. Collective over
// the store, or over the launcher's connections if there is no store. NOT_SUPPORTED: the launcher's library
// is not installed, or the ranks are on several hosts although the row wants one. The row must have passed
// check_engine().
std::shared_ptr<Engine> make_engine(const EngineRow& row, const std::shared_ptr<Rank>& rank,
                                    const EngineOptions& options, const std::shared_ptr<Store>& store);

// Makes the engine of a gang of one rank. Local.
std::shared_ptr<Engine> make_engine_of_one(const std::shared_ptr<Rank>& rank, const EngineOptions& options);

// Makes the engines of ranks that are threads of this process, one for each element of `ranks`. Local.
std::vector<std::shared_ptr<Engine>> make_thread_engines(const std::vector<std::shared_ptr<Rank>>& ranks,
                                                         const EngineOptions& options);

// Makes the engines that move memory of one kind of device, for those ranks of a gang that this process holds
// (its own, or all when ranks are threads). `control`: the engines of the same ranks over host memory, in the
// same order. Each new engine becomes the data plane beside its control engine (planes/dual_engine.h), whose
// rank and size it has.
using DataEngines = std::vector<std::shared_ptr<Engine>> (*)(const std::vector<std::shared_ptr<Rank>>& ranks,
                                                             std::span<const std::shared_ptr<Engine>> control,
                                                             const EngineOptions& options);
// The module of an accelerator calls this when it is loaded. Any thread.
void register_data_engines(DeviceKind kind, DataEngines make);

}  // namespace gangway

#include "gang/registry.h"

#include <map>
#include <mutex>
#include <utility>

#include "device/cuda_module.h"
#include "gang/host/host.h"
#include "gang/local/local_engine.h"
#include "gang/modules.h"
#include "gang/network/network_engine.h"
#include "gang/planes/dual_engine.h"
#include "gang/planes/lowering.h"

namespace gangway {
namespace {

void check_place_in_mpi(const EngineOptions& options) {
  const MpiModule& mpi = mpi_module();
  if (mpi.size() != options.size || mpi.rank() != options.rank)
    fail(Code::invalid_argument, "engine \"mpi\": this is rank ", options.rank, " of ", options.size,
         ", but MPI says rank ", mpi.rank(), " of ", mpi.size());
}

constexpr EngineRow::Launcher kMpi{
    .shares_host = [] { return mpi_module().on_one_host(); },
    .check_place = check_place_in_mpi,
    .make_data = [](const EngineOptions& options) { return mpi_module().make_data(options); },
};

constexpr EngineRow kRows[] = {
    {.name = "auto", .holds_threads = true},
    {.name = "self", .holds_one_rank_only = true},
    {.name = "host", .shares_host = true},
    {.name = "network", .uses_network = true},
    {.name = "mpi", .launcher = &kMpi},
    {.name = "fake", .simulates_peers = true},
    {.name = "threads",
     .refusal =
         "holds ranks that are threads of one process: make all of them with one call of create_threads",
     .holds_threads = true},
    {.name = "nccl",
     .refusal = "is not chosen by name: gangs of device \"cuda\" have it (engine \"auto\")",
     .refusal_code = Code::not_supported},
};
constexpr EngineRow kUnknown{.name = "",
                             .refusal = "is unknown (auto, self, fake, host, network, mpi, threads)"};

// The makers that modules registered.
struct Registered {
  std::mutex mutex;
  std::map<DeviceKind, DataEngines> makers;

  static Registered& get() {
    static Registered registered;
    return registered;
  }
};

DataEngines registered_maker(DeviceKind kind) {
  Registered& registered = Registered::get();
  const std::lock_guard lock(registered.mutex);
  const auto found = registered.makers.find(kind);
  return found == registered.makers.end() ? nullptr : found->second;
}

// Combines each data engine with the control engine of its rank. If there are no data engines, the control
// engines move the data.
std::vector<std::shared_ptr<Engine>> with_data_engines(const std::vector<std::shared_ptr<Rank>>& ranks,
                                                       std::vector<std::shared_ptr<Engine>> control,
                                                       const std::vector<std::shared_ptr<Engine>>& data,
                                                       const EngineOptions& options) {
  for (size_t i = 0; i < data.size(); ++i) {
    EngineOptions own = options;
    own.rank = control[i]->rank();
    control[i] = make_dual_engine(lowered(data[i], ranks[i]), std::move(control[i]), ranks[i], own);
  }
  return control;
}

// Returns the engines that move the memory of the ranks' device; none if the control engines do so.
// `launcher` may be null.
std::vector<std::shared_ptr<Engine>> data_engines(const EngineRow::Launcher* launcher,
                                                  const std::vector<std::shared_ptr<Rank>>& ranks,
                                                  std::span<const std::shared_ptr<Engine>> control,
                                                  const EngineOptions& options) {
  const Device& device = ranks[0]->device();
  if (const DataEngines make = registered_maker(device.kind())) return make(ranks, control, options);
  if (device.kind() == DeviceKind::cuda)
    return cuda_module(device.name()).make_data_engines(ranks, control, options);
  if (launcher != nullptr && options.size > 1) return {launcher->make_data(options)};
  return {};
}

std::shared_ptr<Engine> with_data_engine(const EngineRow::Launcher* launcher,
                                         const std::shared_ptr<Rank>& rank, std::shared_ptr<Engine> control,
                                         const EngineOptions& options) {
  const std::vector<std::shared_ptr<Engine>> own = {std::move(control)};
  return with_data_engines({rank}, own, data_engines(launcher, {rank}, own, options), options)[0];
}

// Makes the engine over host memory, which detects failures.
std::shared_ptr<Engine> make_control_engine(const EngineRow& row, const std::shared_ptr<Rank>& rank,
                                            const EngineOptions& options,
                                            const std::shared_ptr<Store>& store) {
  if (options.size == 1) return make_self_engine(rank, options);
  if (store == nullptr) return make_network_engine(rank, options, mpi_module().all_gather);
  if (row.uses_network) return make_network_engine(rank, options, store, nullptr);
  if (row.shares_host || row.launcher != nullptr || !store->facts().spans_hosts)
    return make_host_engine(rank, options, store);
  return make_network_engine(rank, options, store, make_host_engine);
}

}  // namespace

void register_data_engines(DeviceKind kind, DataEngines make) {
  Registered& registered = Registered::get();
  const std::lock_guard lock(registered.mutex);
  registered.makers[kind] = make;
}

const EngineRow& engine_row(const std::string& name) {
  for (const EngineRow& row : kRows)
    if (name == row.name) return row;
  return kUnknown;
}

void check_engine(const EngineRow& row, const std::string& name, int size) {
  if (row.refusal != nullptr) fail(row.refusal_code, "engine \"", name, "\" ", row.refusal);
  if (row.holds_one_rank_only && size != 1)
    fail(Code::invalid_argument, "engine \"", name, "\" holds one rank, but the gang has ", size);
}

bool needs_store(const EngineRow& row, int size) {
  return size > 1 && !row.simulates_peers && (row.launcher == nullptr || row.launcher->shares_host());
}

std::shared_ptr<Engine> make_engine(const EngineRow& row, const std::shared_ptr<Rank>& rank,
                                    const EngineOptions& options, const std::shared_ptr<Store>& store) {
  if (row.launcher != nullptr && options.size > 1) row.launcher->check_place(options);
  return with_data_engine(row.launcher, rank, make_control_engine(row, rank, options, store), options);
}

std::shared_ptr<Engine> make_engine_of_one(const std::shared_ptr<Rank>& rank, const EngineOptions& options) {
  return with_data_engine(nullptr, rank, make_self_engine(rank, options), options);
}

std::vector<std::shared_ptr<Engine>> make_thread_engines(const std::vector<std::shared_ptr<Rank>>& ranks,
                                                         const EngineOptions& options) {
  const std::vector<std::shared_ptr<Engine>> control =
      ranks.size() == 1 ? std::vector<std::shared_ptr<Engine>>{make_self_engine(ranks[0], options)}
                        : make_host_thread_engines(ranks, options);
  return with_data_engines(ranks, control, data_engines(nullptr, ranks, control, options), options);
}

}  // namespace gangway

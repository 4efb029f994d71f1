#include "gang/registry.h"

#include <map>
#include <mutex>
#include <utility>

#include "device/cuda_module.h"
#include "gang/dual_engine.h"
#include "gang/host/host.h"
#include "gang/local_engine.h"
#include "gang/lowering.h"
#include "gang/modules.h"

namespace gangway {
namespace {

// Those that were registered.
struct Registered {
  std::mutex mutex;
  std::map<DeviceKind, DataEngines> makers;

  static Registered& get() {
    static Registered registered;
    return registered;
  }
};

// Engines of host memory, of all ranks or of this one.
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

// What moves the memory of the ranks' device; nothing where the control engines do.
std::vector<std::shared_ptr<Engine>> data_engines(const std::string& engine,
                                                  const std::vector<std::shared_ptr<Rank>>& ranks,
                                                  std::span<const std::shared_ptr<Engine>> control,
                                                  const EngineOptions& options) {
  Registered& registered = Registered::get();
  std::unique_lock lock(registered.mutex);
  const auto found = registered.makers.find(ranks[0]->device().kind());
  const DataEngines make = found == registered.makers.end() ? nullptr : found->second;
  lock.unlock();
  if (make != nullptr) return make(ranks, control, options);
  const Device& device = ranks[0]->device();
  if (device.kind() == DeviceKind::cuda)
    return cuda_module(device.name()).make_data_engines(ranks, control, options);
  if (engine == "mpi" && options.size > 1) return {mpi_module().make_data(options)};
  return {};
}

}  // namespace

void register_data_engines(DeviceKind kind, DataEngines make) {
  Registered& registered = Registered::get();
  const std::lock_guard lock(registered.mutex);
  registered.makers[kind] = make;
}

void check_engine(const std::string& engine, int size) {
  if (engine == "nccl")
    fail(Code::not_supported,
         "engine \"nccl\" is not chosen by name: gangs of device \"cuda\" have it (engine \"auto\")");
  if (engine == "gloo")
    fail(Code::not_supported,
         "engine \"gloo\" is not in this version (it has self, fake, host, mpi and threads)");
  if (engine == "threads")
    fail(Code::invalid_argument,
         "engine \"threads\" holds ranks that are threads of one process: make all of them with one call of "
         "create_threads");
  if (engine == "self" && size != 1)
    fail(Code::invalid_argument, "engine \"self\" holds one rank, but the gang has ", size);
  if (engine != "auto" && engine != "self" && engine != "host" && engine != "fake" && engine != "mpi")
    fail(Code::invalid_argument, "engine \"", engine, "\" is unknown (auto, self, fake, host, mpi, threads)");
}

namespace {

void check_place_in_mpi(const EngineOptions& options) {
  const MpiModule& mpi = mpi_module();
  if (mpi.size() != options.size || mpi.rank() != options.rank)
    fail(Code::invalid_argument, "engine \"mpi\": this is rank ", options.rank, " of ", options.size,
         ", but MPI says rank ", mpi.rank(), " of ", mpi.size());
}

// Over host memory; it notices what goes wrong. Ranks that do not share a host have none but MPI's messages.
std::shared_ptr<Engine> make_control_engine(const std::shared_ptr<Rank>& rank, const EngineOptions& options,
                                            const std::shared_ptr<Store>& store) {
  if (options.size == 1) return make_self_engine(rank, options);
  if (store == nullptr) return lowered(mpi_module().make_control(rank, options), rank);
  return make_host_engine(rank, options, store);
}

}  // namespace

bool needs_store(const std::string& engine, int size) {
  return size > 1 && engine != "fake" && (engine != "mpi" || mpi_module().on_one_host());
}

std::shared_ptr<Engine> make_engine(const std::string& engine, const std::shared_ptr<Rank>& rank,
                                    const EngineOptions& options, const std::shared_ptr<Store>& store) {
  check_engine(engine, options.size);
  if (engine == "fake") return make_fake_engine(rank, options, /*record=*/false);
  if (engine == "mpi" && options.size > 1) check_place_in_mpi(options);
  const std::vector<std::shared_ptr<Engine>> control = {make_control_engine(rank, options, store)};
  return with_data_engines({rank}, control, data_engines(engine, {rank}, control, options), options)[0];
}

std::vector<std::shared_ptr<Engine>> make_thread_engines(const std::vector<std::shared_ptr<Rank>>& ranks,
                                                         const EngineOptions& options) {
  const std::vector<std::shared_ptr<Engine>> control =
      ranks.size() == 1 ? std::vector<std::shared_ptr<Engine>>{make_self_engine(ranks[0], options)}
                        : make_host_thread_engines(ranks, options);
  return with_data_engines(ranks, control, data_engines("threads", ranks, control, options), options);
}

}  // namespace gangway

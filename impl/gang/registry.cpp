#include "gang/registry.h"

#include <atomic>
#include <utility>

#include "gang/dual_engine.h"
#include "gang/host/host.h"
#include "gang/local_engine.h"
#include "gang/lowering.h"
#include "gang/modules.h"

namespace gangway {
namespace {

std::atomic<DataPlane> extension = nullptr;

// Engines of one gang; all its ranks are on devices of one kind.
std::vector<std::shared_ptr<Engine>> with_data_plane(const std::vector<std::shared_ptr<Rank>>& ranks,
                                                     std::vector<std::shared_ptr<Engine>> engines,
                                                     const EngineOptions& options) {
  const DataPlane make = extension;
  if (make == nullptr || ranks[0]->device().kind() != DeviceKind::extension) return engines;
  return make(ranks, std::move(engines), options);
}

}  // namespace

void register_data_plane(DataPlane make) { extension = make; }

void check_engine(const std::string& engine, int size) {
  if (engine == "gloo" || engine == "nccl")
    fail(Code::not_supported, "engine \"", engine,
         "\" is not in this build (this version has self, fake, host, mpi and threads)");
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

// Data by MPI; control by the host engine where ranks share a host, else by messages.
std::shared_ptr<Engine> make_mpi_engine(const std::shared_ptr<Rank>& rank, const EngineOptions& options,
                                        const std::shared_ptr<Store>& store) {
  const MpiModule& mpi = mpi_module();
  if (mpi.size() != options.size || mpi.rank() != options.rank)
    fail(Code::invalid_argument, "engine \"mpi\": this is rank ", options.rank, " of ", options.size,
         ", but MPI says rank ", mpi.rank(), " of ", mpi.size());
  std::shared_ptr<Engine> control = store != nullptr ? make_host_engine(rank, options, store)
                                                     : lowered(mpi.make_control(rank, options), rank);
  return make_dual_engine(lowered(mpi.make_data(options), rank), std::move(control), rank, options);
}

}  // namespace

bool needs_store(const std::string& engine, int size) {
  return size > 1 && engine != "fake" && (engine != "mpi" || mpi_module().on_one_host());
}

std::shared_ptr<Engine> make_engine(const std::string& engine, const std::shared_ptr<Rank>& rank,
                                    const EngineOptions& options, const std::shared_ptr<Store>& store) {
  check_engine(engine, options.size);
  if (engine == "fake") return make_fake_engine(rank, options, /*record=*/false);
  if (options.size == 1) return with_data_plane({rank}, {make_self_engine(rank, options)}, options)[0];
  if (engine == "mpi") return make_mpi_engine(rank, options, store);
  return make_host_engine(rank, options, store);
}

std::vector<std::shared_ptr<Engine>> make_thread_engines(const std::vector<std::shared_ptr<Rank>>& ranks,
                                                         const EngineOptions& options) {
  return with_data_plane(ranks,
                         ranks.size() == 1
                             ? std::vector<std::shared_ptr<Engine>>{make_self_engine(ranks[0], options)}
                             : make_host_thread_engines(ranks, options),
                         options);
}

}  // namespace gangway

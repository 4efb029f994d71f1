#include "gang/mpi_module.h"

#include <vector>

#include <gangway_build_id.h>
#include "gang/mpi/data_engine.h"
#include "gang/mpi/runtime.h"
#include "gang/rendezvous/identity.h"

namespace gangway::mpi {
namespace {

int world_rank() {
  int rank = 0;
  check(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank");
  return rank;
}

int world_size() {
  int size = 0;
  check(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size");
  return size;
}

bool all_on_one_host() {
  const RankIdentity mine = own_identity();
  std::vector<RankIdentity> all(static_cast<size_t>(world_size()));
  check(MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all.data(), sizeof mine, MPI_BYTE, MPI_COMM_WORLD),
        "MPI_Allgather");
  return on_one_host(all);
}

void all_gather(const void* mine, size_t bytes, void* all) {
  check(MPI_Allgather(mine, static_cast<int>(bytes), MPI_BYTE, all, static_cast<int>(bytes), MPI_BYTE,
                      MPI_COMM_WORLD),
        "MPI_Allgather");
}

}  // namespace
}  // namespace gangway::mpi

extern "C" __attribute__((visibility("default"))) const void* gangway_mpi_module() {
  using namespace gangway::mpi;
  static constexpr gangway::MpiModule module{
      gangway::kBuildId, start, world_rank, world_size, all_on_one_host, make_data_engine, all_gather};
  return &module;
}

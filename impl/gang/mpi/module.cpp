#include "gang/mpi_module.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include <gangway_build_id.h>
#include "gang/mpi/control_engine.h"
#include "gang/mpi/data_engine.h"
#include "gang/mpi/runtime.h"

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

// Identifies the boot of a machine and the namespaces in which this process runs. Two processes with the same
// name can reach each other by abstract sockets.
std::string host_name() {
  std::string name;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), name);
  for (const char* const space : {"/proc/self/ns/net", "/proc/self/ns/pid"}) {
    struct stat about = {};
    if (stat(space, &about) == 0) name += text(" ", about.st_dev, ":", about.st_ino);
  }
  return name;
}

bool on_one_host() {
  std::array<char, 128> mine{};
  host_name().copy(mine.data(), mine.size() - 1);
  std::vector<char> all(mine.size() * static_cast<size_t>(world_size()));
  check(MPI_Allgather(mine.data(), static_cast<int>(mine.size()), MPI_BYTE, all.data(),
                      static_cast<int>(mine.size()), MPI_BYTE, MPI_COMM_WORLD),
        "MPI_Allgather");
  for (size_t at = 0; at < all.size(); at += mine.size())
    if (std::memcmp(all.data() + at, mine.data(), mine.size()) != 0) return false;
  return true;
}

}  // namespace
}  // namespace gangway::mpi

extern "C" __attribute__((visibility("default"))) const void* gangway_mpi_module() {
  using namespace gangway::mpi;
  static constexpr gangway::MpiModule module{
      gangway::kBuildId, start, world_rank, world_size, on_one_host, make_data_engine, make_control_engine};
  return &module;
}

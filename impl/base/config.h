// Every environment variable that the library reads, in one struct. Read once, on first use; a bad value is an
// INVALID_ARGUMENT that names the variable. Launcher variables (RANK, SLURM_*, ...) belong to gang/rendezvous. Thread rule:
// any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace gangway {

struct Config {
  // GANGWAY_NUM_THREADS: threads of one rank's pool; 0: cores / ranks on this host, at least 1.
  int num_threads = 0;
  // GANGWAY_CPU_ISA: highest instruction set used: "avx512", "avx2", "portable"; empty: what the processor has.
  std::string cpu_isa;
  // GANGWAY_EXPECTED_SIZE: number of ranks the environment must give; 0: any.
  int expected_size = 0;
  // GANGWAY_ARENA_BYTES: reserve (address space) of a host's arena; 0: min(8 x RAM, 256 GiB).
  uint64_t arena_bytes = 0;
  // GANGWAY_MEMORY_LIMIT: bytes that all arenas of a host may take; 0: 80 % of what is available at creation.
  uint64_t memory_limit = 0;
  // GANGWAY_TIMEOUT_MS: default deadline of a gang's waits.
  int64_t timeout_ms = 15 * 60 * 1000;
  // GANGWAY_LIVENESS_MS: a peer whose heartbeat stands still for this long is lost; 0: off.
  int64_t liveness_ms = 0;
  // GANGWAY_SECRET_FILE: file of mode 0600 with the gang's 32-byte secret.
  std::string secret_file;
  // GANGWAY_SECRET_FD: inherited descriptor to read the secret from (what gangrun sets); -1: none.
  int secret_fd = -1;
  // GANGWAY_PORT: port of the store between hosts; 0: MASTER_PORT + 1.
  int port = 0;
  // GANGWAY_INTERFACE: address that rank 0's store listens on between hosts; empty: MASTER_ADDR.
  std::string interface;
  // GANGWAY_MODULES: folder of loadable modules; empty: beside the library, else where libraries of the program are found,
  // else where the library was installed.
  std::string module_folder;
  // GANGWAY_TRACE: folder that each rank of a root gang writes its trace into, rank-R.json; the same on all ranks. Empty: none.
  std::string trace_folder;
  // GANGWAY_SHARED_REGIONS: 0 keeps private shards and real gathers even on one host (a switch for tests).
  bool shared_regions = true;
  // GANGWAY_CUDA_GRAPHS: 1 starts runs of operations that repeat as one CUDA graph each; 0 starts every operation at once. Read
  // again for each device that is made.
  bool cuda_graphs = true;
  // GANGWAY_CUDNN: auto lets cuDNN compute attention on NVIDIA GPUs where it is installed and takes the call; 0 never asks it.
  // Off by default until it ran on hardware: the own kernels are tested on the software GPU.
  bool cudnn = false;
};

// Parsed from the process's environment at the first call.
const Config& config();

// Parses the environment now (tests).
Config read_config();

// One line per field: name, value, whether it was set. For gw-info and gw_config_text.
std::string describe(const Config& config);

}  // namespace gangway

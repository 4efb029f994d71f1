// The struct of every environment variable that the library reads. The variables are read once, on first use.
// A bad value is an INVALID_ARGUMENT that names the variable. The launcher's variables (RANK, SLURM_*, ...)
// belong to gang/rendezvous. A program with rights that its user does not have (setuid, setgid, capabilities)
// gets the defaults, whatever the variables say.
//
// Thread rule: any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace gangway {

struct Config {
  // GANGWAY_NUM_THREADS: the number of threads in one rank's pool. 0 means the processors that this process
  // may use (affinity, CPU quota of the control group) divided by the ranks of this host, at least 1.
  int num_threads = 0;
  // GANGWAY_CPU_ISA: the highest instruction set that the kernels may use: "avx512", "avx2" or "portable".
  // Empty means the widest instruction set of the processor.
  std::string cpu_isa;
  // GANGWAY_EXPECTED_SIZE: the number of ranks that the launcher's environment must give. 0 accepts any
  // number.
  int expected_size = 0;
  // GANGWAY_ARENA_BYTES: the address space that a host's arena reserves. 0 means min(8 x RAM, 256 GiB).
  uint64_t arena_bytes = 0;
  // GANGWAY_MEMORY_LIMIT: the number of bytes that all arenas of a host may use. 0 means 80 % of the memory
  // that is available when the arena is created.
  uint64_t memory_limit = 0;
  // GANGWAY_TIMEOUT_MS: the default timeout of a gang's waits.
  int64_t timeout_ms = 15 * 60 * 1000;
  // GANGWAY_LIVENESS_MS: a peer counts as lost when its heartbeat has not changed for this long. 0 turns the
  // check off.
  int64_t liveness_ms = 0;
  // GANGWAY_SECRET_FILE: a file of mode 0600 that holds the gang's 32-byte secret.
  std::string secret_file;
  // GANGWAY_SECRET_FD: an inherited file descriptor from which the secret is read. gangrun sets it. -1 means
  // none.
  int secret_fd = -1;
  // GANGWAY_PORT: the port of the store between hosts. 0 means MASTER_PORT + 1.
  int port = 0;
  // GANGWAY_INTERFACE: the address, or the name of the interface, at which this rank listens between hosts.
  // Empty means MASTER_ADDR for rank 0, and the address from which the others reach it.
  std::string interface;
  // GANGWAY_WIRE: what moves the data between hosts: "sockets", or "fabric" for libfabric, by the module
  // libgangway_fabric.so. All ranks must have the same value. Empty means sockets.
  std::string wire;
  // GANGWAY_MODULES: the folder of the loadable modules. If it is empty, the library looks for a module
  // beside itself, then where the dynamic linker finds the program's libraries, then where the library was
  // installed.
  std::string module_folder;
  // GANGWAY_TRACE: the folder into which each rank of a root gang writes its trace, rank-R.json. All ranks
  // must have the same value. Empty means no trace.
  std::string trace_folder;
  // GANGWAY_SHARED_REGIONS: 0 keeps private shards and real all-gathers even on one host. Tests use it.
  bool shared_regions = true;
  // GANGWAY_KERNEL_COPIES: 1 lets ranks of one host read each other's own memory through the kernel, where
  // it allows that; 0 copies it through shared memory.
  bool kernel_copies = true;
  // GANGWAY_CUDA_GRAPHS: 1 launches a repeated run of operations as one CUDA graph, 0 launches every
  // operation at once. Each new device reads the variable again.
  bool cuda_graphs = true;
  // GANGWAY_NCCL_REGISTER: the least bytes of a buffer of sharded training that gets memory which NCCL
  // registers. 0 registers none. All ranks must have the same value.
  uint64_t nccl_register = uint64_t{1} << 20;
  // GANGWAY_NCCL_CTA_POLICY: how NCCL (2.27 or newer) shares a GPU's multiprocessors with the model:
  // "default" for the fastest collective, "efficiency" for few thread blocks, "zero" (2.28 or newer) for the
  // copy engines where they can do the work. All ranks must have the same value.
  std::string nccl_cta_policy = "efficiency";
  // GANGWAY_CUDA_TUNING: 1 measures cuBLASLt's algorithms at the first product of each shape and keeps the
  // fastest, 0 takes the algorithm that cuBLASLt names first. The numbers are the same. Each new device reads
  // the variable again.
  bool cuda_tuning = true;
  // GANGWAY_CUDNN: "auto" lets cuDNN compute attention on NVIDIA GPUs where it is installed, supports the
  // call and has a plan that fits, "0" never uses it. Plans of memory for GPUs read it, too.
  bool cudnn = true;
};

// Returns the configuration, which the first call parses from the process's environment.
const Config& config();

// Parses the environment again. For tests.
Config read_config();

// Returns one line per field: the variable's name, its value, and whether it was set. For gw-info and
// gw_config_text.
std::string describe(const Config& config);

}  // namespace gangway

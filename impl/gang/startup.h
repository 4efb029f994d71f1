// Who am I? Reads, in this order: explicit options; torchrun's variables (which gangrun sets too); Slurm's; Open MPI's;
// PMI's. With none set: one rank. Pure reading: nothing is connected here (bootstrap.h does that).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "gang/store.h"
#include "gang/tcp_store.h"

namespace gangway {

struct Environment {
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  std::string host;      // MASTER_ADDR
  int port = 0;          // MASTER_PORT
  std::string job;       // names the job: TORCHELASTIC_RUN_ID, SLURM_JOB_ID.STEP, PMIX_NAMESPACE, else MASTER_PORT + parent
  int restart = 0;       // TORCHELASTIC_RESTART_COUNT, GANGWAY_RESTART_COUNT
  std::string launcher;  // "none", "torchrun", "slurm", "openmpi", "pmi", "options"
};

// INVALID_ARGUMENT that names the variable: RANK without WORLD_SIZE, LOCAL_* not together, no integer, rank >= size,
// another size than GANGWAY_EXPECTED_SIZE.
Environment read_environment();

// The store of a job described by `environment`: reads or makes the secret, connects. Size 1: memory store.
// The generation counts root gangs made from one environment; it becomes part of the keys.
std::shared_ptr<Store> connect(const Environment& environment, int generation, Deadline deadline);

}  // namespace gangway

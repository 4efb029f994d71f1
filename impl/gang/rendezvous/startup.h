// Who am I? Reads, in this order: explicit options; RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT,
// which torchrun and gangrun set (by hand RANK and WORLD_SIZE are enough on one host); Slurm's; Open MPI's; PMI's. With none
// set: one rank. Thread rule: any thread that may read the environment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "gang/rendezvous/store.h"
#include "gang/rendezvous/tcp_store.h"

namespace gangway {

struct Environment {
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  std::string host;  // MASTER_ADDR
  int port = 0;      // MASTER_PORT
  // Names the job: GANGWAY_JOB (gangrun's), TORCHELASTIC_RUN_ID (but "none"), SLURM_JOB_ID.STEP, PMIX_NAMESPACE, else
  // MASTER_PORT (or none) and, for the ranks of a launcher on one host, the parent's process id. Ranks of one user that are
  // started by hand, with RANK and WORLD_SIZE alone, meet: two such jobs at a time need a MASTER_PORT or GANGWAY_JOB each.
  std::string job;
  int restart = 0;       // GANGWAY_RESTART_COUNT, TORCHELASTIC_RESTART_COUNT
  std::string launcher;  // "none", "torchrun", "slurm", "openmpi", "pmi", "options"
};

// INVALID_ARGUMENT that names the variable: RANK without WORLD_SIZE, LOCAL_* not together, no integer, rank >= size,
// another size than GANGWAY_EXPECTED_SIZE.
Environment read_environment();

// INVALID_ARGUMENT when the environment gives another number of ranks; `who` names what expects it.
void check_expected_size(const Environment& environment, int expected, const char* who);

// The store of a job described by `environment`: reads or makes the secret, connects. Size 1: memory store.
// One host (every rank is local, or MASTER_ADDR is absent or loopback): abstract socket; else tcp. Several hosts without
// a secret: INVALID_ARGUMENT that names GANGWAY_SECRET_FILE. The generation counts root gangs made from one environment;
// it becomes part of the keys.
std::shared_ptr<Store> connect(const Environment& environment, int generation, Deadline deadline);

// The store of those who were given one id: a secret that authenticates ranks, then a random name that keeps jobs
// apart. On one host.
constexpr size_t kIdBytes = 64;
std::shared_ptr<Store> connect_by_id(const std::string& id, int rank, int size, Deadline deadline);

}  // namespace gangway

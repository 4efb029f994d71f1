// Finds out which rank this process is. The sources, in this order: explicit options; RANK, WORLD_SIZE,
// LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT, which torchrun and gangrun set (on one host
// RANK and WORLD_SIZE are enough); the variables of a step of Slurm (its batch script is no task); of Open
// MPI; of PMI. If none is set: one rank.
//
// Thread rule: any thread that may read the environment.
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
  // Names the job. The sources: GANGWAY_JOB (gangrun sets it), TORCHELASTIC_RUN_ID (unless it is "none"),
  // SLURM_JOB_ID.STEP, PMIX_NAMESPACE; else MASTER_PORT (or none) with, for the ranks of a launcher on one
  // host, the process id of their parent. Ranks of one user that were started with RANK and WORLD_SIZE alone
  // therefore meet: two such jobs at a time need a MASTER_PORT or a GANGWAY_JOB each.
  std::string job;
  int restart = 0;       // GANGWAY_RESTART_COUNT, on one host TORCHELASTIC_RESTART_COUNT
  std::string launcher;  // "none", "torchrun", "slurm", "openmpi", "pmi", "options"
};

// INVALID_ARGUMENT, which names the variable: RANK without WORLD_SIZE, one LOCAL_* variable without the
// other, a value that is no integer, rank >= size, or another size than GANGWAY_EXPECTED_SIZE.
Environment read_environment();

// INVALID_ARGUMENT if the environment gives another number of ranks. `who` names the setting that expects it.
void check_expected_size(const Environment& environment, int expected, const char* who);

// Returns whether the launcher of MPI has put the ranks on several hosts, and nothing but MPI knows where
// they meet: there is no MASTER_ADDR.
bool meets_by_mpi(const Environment& environment);

// Returns the store of the job that `environment` describes: reads or creates the secret, and connects. With
// one rank it is a memory store. On one host (every rank is local, or MASTER_ADDR is absent or loopback) it
// uses an abstract socket, else TCP. Several hosts without a secret are INVALID_ARGUMENT, which names
// GANGWAY_SECRET_FILE. `generation` counts the root gangs that were made from one environment; it becomes
// part of the keys.
std::shared_ptr<Store> connect(const Environment& environment, int generation, Deadline deadline);

// Where rank 0's store listens. An empty address means an abstract socket of this host.
struct StorePlace {
  std::string address;
  int port = 0;
};
// Returns an address of this host that others reach (GANGWAY_INTERFACE, else the first that is no loopback;
// "" if there is none), and a port of it that is free now.
StorePlace place_for_store();

// An id with which ranks find each other: a secret that authenticates them, then a random name that separates
// jobs. Without a place the ranks are on one host.
constexpr size_t kIdBytes = 64;
std::shared_ptr<Store> connect_by_id(const std::string& id, int rank, int size, Deadline deadline,
                                     const StorePlace& place = {});

}  // namespace gangway

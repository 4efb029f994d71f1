// The variables by which launchers tell a rank its place, for tests of start-up.
#pragma once

#include <cstdlib>
#include <map>
#include <string>

namespace gangway::test {

using Variables = std::map<std::string, std::string>;

// Nothing of the launcher that started the tests themselves.
inline void forget_launchers() {
  for (const char* const variable : {"RANK",
                                     "WORLD_SIZE",
                                     "LOCAL_RANK",
                                     "LOCAL_WORLD_SIZE",
                                     "MASTER_ADDR",
                                     "MASTER_PORT",
                                     "SLURM_PROCID",
                                     "SLURM_NTASKS",
                                     "SLURM_STEP_NUM_TASKS",
                                     "SLURM_LOCALID",
                                     "SLURM_NNODES",
                                     "SLURM_STEP_NUM_NODES",
                                     "SLURM_NODEID",
                                     "SLURM_JOB_ID",
                                     "SLURM_STEP_ID",
                                     "SLURM_NODELIST",
                                     "SLURM_STEP_NODELIST",
                                     "SLURM_TASKS_PER_NODE",
                                     "SLURM_STEP_TASKS_PER_NODE",
                                     "OMPI_COMM_WORLD_RANK",
                                     "OMPI_COMM_WORLD_SIZE",
                                     "OMPI_COMM_WORLD_LOCAL_RANK",
                                     "OMPI_COMM_WORLD_LOCAL_SIZE",
                                     "PMI_RANK",
                                     "PMI_SIZE",
                                     "PMI_LOCAL_RANK",
                                     "PMI_LOCAL_SIZE",
                                     "MPI_LOCALRANKID",
                                     "MPI_LOCALNRANKS",
                                     "PMIX_NAMESPACE",
                                     "TORCHELASTIC_RUN_ID",
                                     "TORCHELASTIC_RESTART_COUNT",
                                     "GANGWAY_JOB",
                                     "GANGWAY_RESTART_COUNT",
                                     "GANGWAY_SECRET_FD",
                                     "GANGWAY_SECRET_FILE",
                                     "GANGWAY_EXPECTED_SIZE",
                                     "GANGWAY_PORT",
                                     "GANGWAY_INTERFACE",
                                     "NCCL_SOCKET_IFNAME"})
    unsetenv(variable);
}

}  // namespace gangway::test

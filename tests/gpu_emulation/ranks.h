// Makes a gang of processes on device "cuda". Each process has its own software GPUs, and rank r uses GPU r.
#pragma once

#include "gang/processes.h"
#include "gang/thread_ranks.h"
#include "support/placed.h"

namespace gangway::test {

inline GangPtr cuda_root(int rank, int size, const std::shared_ptr<Store>& store, int64_t timeout_ms = 0) {
  setenv("GANGWAY_MODULES", placed("@build@/tests/gpu_emulation").c_str(), 1);
  setenv("GANGWAY_NCCL_REGISTER", "1", 0);  // the models of tests are small
  GangOptions options = thread_rank_options();
  options.device = text("cuda:", rank);
  options.rank = rank;
  options.size = size;
  options.store = store;
  if (timeout_ms != 0) options.timeout_ms = timeout_ms;
  return Gang::create(options);
}

}  // namespace gangway::test

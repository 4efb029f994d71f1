// Training steps of a Llama on modelled GPUs: ranks are threads, each on a device of its own, and what is too large to be
// computed is logged only (gpu_emulation/log.h).
//
// Thread rule: one thread at a time; the software GPU is the process's.
#pragma once

#include <vector>

#include "gpu_emulation/log.h"
#include "nn/layers.h"
#include "parallel/options.h"

namespace gangway::timeline {

struct Plan {
  DecoderOptions model;
  int ranks = 8;
  int64_t sequences = 1, tokens = 4096;  // of a rank and step
  int microbatches = 1;                  // that the sequences are cut into
  ShardOptions shard;
  double max_grad_norm = 1;
  DType moments = DType::f32;
  bool says_weight = true;  // the batch's, so that the host need not wait for it
};
// Llama 3 8B, fully sharded, products in bf16, masters and moments in f32.
Plan plan_8b();

struct StepLog {
  std::vector<std::vector<gpu_emulation::Entry>>
      ranks;  // of the last of three steps, in the order of each host's calls
  double loss = 0;
  bool stepped = true;
  std::string report;  // of the software GPU's first fault; empty: none
};
StepLog run_step(const Plan& plan);

// Kernels, products, copies and memsets of one block's forward and backward, by name, on one rank: what a model of two
// blocks has more than one of one.
struct BlockLaunches {
  std::vector<std::string> forward, backward;
};
BlockLaunches block_launches(const Plan& plan);

}  // namespace gangway::timeline

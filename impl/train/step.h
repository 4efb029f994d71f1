// The train layer. Belongs here: the order of a step over a wrapped model, what ranks agree on before it, batches,
// generation. Does not: wrappers and their collectives (parallel), the update's arithmetic (optim).
//
// One training step, top to bottom.
//
// Thread rule: one thread at a time; collective over the model's gangs.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "optim/optimizer.h"
#include "parallel/model/model.h"

namespace gangway {

// The rows of this rank's data coordinate; dim 0 of every tensor is the batch. Ranks of one data coordinate pass the
// same batch: with context parallelism the library takes this rank's part of dim 1, the sequence.
struct Batch {
  std::vector<Tensor> inputs, targets;
  // Items that count; -1: labels (the first target, i64) that are not -100 after the shift; with context
  // parallelism -1 only. Zero rows of weight 0 are legal.
  int64_t weight = -1;
  // Labels (the first target, i64 with two dims or more) are Hugging Face's, equal to the tokens: the library
  // shifts them by one along the last dim, the last position is ignored. True: they are shifted already.
  bool shifted = false;
};

struct StepOptions {
  int microbatches = 1;      // dim 0 split evenly, first ones larger
  double max_grad_norm = 0;  // 0: no clipping
  double norm_type = 2;
  bool check_finite = true;  // a non-finite loss or gradient skips the step alike on all ranks
  double scale = 1;          // of gradients, for loops that seed with 1; train_step takes 1 only
};

enum class Skip : uint8_t { none, no_weight /* N = 0 */, non_finite /* loss or gradients */ };

struct StepResult {
  double loss = 0;            // global mean, on every rank; NaN without weight
  double grad_norm = -1;      // before clipping; -1: not taken (no clipping asked, or no gradients)
  int64_t weight = 0;         // N
  Skip skipped = Skip::none;  // why nothing was changed
  double seconds = 0;
  double tokens_per_second = 0;     // over all data ranks
  double exposed_wait_seconds = 0;  // time this rank spent waiting in collectives
  int64_t step = 0;
  double lr = 0;
  double loss_scale = 1;  // that the step used; 1: none
};

// Sums N first (each rank's check status rides along), forward and backward for each microbatch, gradients,
// clip, optimizer. Refusals are agreed: all ranks throw the first one (lowest rank), MISMATCH where ranks
// pass different options; nothing has changed and the gangs work on. A failure after that breaks every gang of
// the model, and peers throw the failing rank's error; a rank that is alone works on, with empty gradients.
// On a device that is not the host, ids and labels of a batch that says its weight are judged with the step's one wait, after
// backward: a refusal leaves empty gradients then.
// N = 0: skipped, and the loss is NaN. Backward starts from the optimizer's loss scale over N; all that is told is unscaled.
// `optimizer` null: refused likewise.
StepResult train_step(Model& model, Optimizer* optimizer, const Batch& batch, const StepOptions& options,
                      Stream& stream);

// Loss of a batch without gradients; of the options only microbatches matter. Collective.
StepResult eval_step(Model& model, const Batch& batch, const StepOptions& options, Stream& stream);

// The optimizer's half: norm, clip, finite check, begin_update, step, end_update. What gw_optimizer_step
// calls. The caller seeded its backward with the optimizer's loss scale, too.
StepResult optimizer_step(Model& model, Optimizer& optimizer, const StepOptions& options, Stream& stream);

struct GenerateOptions {
  int64_t new_tokens = 64;
  double temperature = 1;  // 0: the most likely token
  int64_t top_k = 0;       // 0: all
  uint64_t seed = 0;
};
// Continues `prompt` (one sequence of token ids, equal on all ranks) on the sharded model; the new tokens,
// the same on every rank. The model sees the last max_positions tokens. Collective.
std::vector<int64_t> generate(Model& model, std::span<const int64_t> prompt, const GenerateOptions& options,
                              Stream& stream);

}  // namespace gangway

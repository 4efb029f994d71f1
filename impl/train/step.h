// The train layer holds the order of a step of a wrapped model, what ranks compare before it, batches and
// generation. Wrappers and their collectives (parallel) and the arithmetic of the update (optim) do not
// belong here.
//
// This header declares the steps of training and evaluation, and generation.
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

// The rows of this rank's data coordinate. Dim 0 of every tensor is the batch. Ranks of one data coordinate
// pass the same batch; with context parallelism the library takes this rank's part of dim 1, the sequence.
struct Batch {
  std::vector<Tensor> inputs, targets;
  // The number of items that count in the mean loss. -1: the number of labels (the first target, i64) that
  // are not -100 after the shift. With context parallelism it must be -1. A batch of zero rows with weight 0
  // is allowed.
  int64_t weight = -1;
  // By default, labels (the first target, i64 with two dims or more) equal the tokens, as in Hugging Face.
  // The library shifts them by one along the last dim, and the last position does not count. True: the caller
  // has shifted them already.
  bool shifted = false;
};

struct StepOptions {
  int microbatches = 1;      // dim 0 is split evenly; the first microbatches get the remaining rows
  double max_grad_norm = 0;  // 0: no clipping
  double norm_type = 2;
  bool check_finite = true;  // all ranks skip the step if the loss or a gradient of any rank is not finite
  // A factor of the gradients, for manual loops whose backward starts from 1. train_step accepts only 1.
  double scale = 1;
  // Whether this rank asks all ranks to stop after this step. The step itself runs as usual.
  bool stop = false;
};

enum class Skip : uint8_t { none, no_weight /* N is 0 */, non_finite /* loss or gradients */ };

struct StepResult {
  double loss = 0;        // the mean over all ranks, equal on all; NaN if the weight is 0
  double grad_norm = -1;  // before clipping; -1: not computed (clipping is off, or there are no gradients)
  int64_t weight = 0;     // N, the number of items that count on all ranks
  Skip skipped = Skip::none;  // why the step changed nothing
  double seconds = 0;
  double tokens_per_second = 0;     // over all data ranks
  double exposed_wait_seconds = 0;  // time this rank spent waiting in collectives
  int64_t step = 0;
  double lr = 0;
  double loss_scale = 1;  // the scale that the step used; 1: none
};

// One training step: sums N over all ranks (in the same exchange as each rank's check status), runs forward
// and backward of each microbatch, reduces and clips the gradients, and steps the optimizer. If a rank
// refuses, all ranks throw the first error (lowest rank), or MISMATCH if they pass different options; nothing
// has changed and the gangs stay usable. A failure after that breaks every gang of the model, and peers throw
// the failing rank's error; a gang of one rank stays usable, and the gradients are empty.
//
// If the device is not the host, the step checks the ids and labels of a batch that states its weight only
// after backward, at its one wait for the device. A refusal then leaves empty gradients.
//
// If N is 0, the step is skipped and the loss is NaN. Backward starts from the optimizer's loss scale over N;
// every number in the result is unscaled. A null `optimizer` is refused like any other argument.
StepResult train_step(Model& model, Optimizer* optimizer, const Batch& batch, const StepOptions& options,
                      Stream& stream);

// Computes the loss of a batch without gradients. It reads only `microbatches` of the options. Collective.
StepResult eval_step(Model& model, const Batch& batch, const StepOptions& options, Stream& stream);

// The second half of a step, which gw_optimizer_step calls: norm, clip, finite check, begin_update, step,
// end_update. The caller's backward must have started from the optimizer's loss scale, too.
StepResult optimizer_step(Model& model, Optimizer& optimizer, const StepOptions& options, Stream& stream);

// Exchanges the values of the parameters and their averages (OptimizerOptions::ema_decay), for an evaluation, a
// save or generation. No step is taken until a second call has swapped them back. Collective; refusals are
// agreed. INVALID_STATE: the optimizer keeps no averages, or has not stepped yet.
void swap_ema(Model& model, Optimizer& optimizer, Stream& stream);

struct GenerateOptions {
  int64_t new_tokens = 64;
  double temperature = 1;  // 0: the most likely token
  int64_t top_k = 0;       // 0: all
  uint64_t seed = 0;
};
// Continues `prompt`, one sequence of token ids that is equal on all ranks, and returns the new tokens, which
// are equal on all ranks. The model reads the last max_positions tokens. Collective.
std::vector<int64_t> generate(Model& model, std::span<const int64_t> prompt, const GenerateOptions& options,
                              Stream& stream);

}  // namespace gangway

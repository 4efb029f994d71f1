// What the calls of the train layer take and return: a batch, their options, and the result of a step.
//
// Thread rule: values.
#pragma once

#include <cstdint>
#include <vector>

#include "tensor/tensor.h"

namespace gangway {

// The rows of this rank's data coordinate. Dim 0 of every tensor is the batch. Ranks of one data coordinate
// pass the same batch; with context parallelism the library takes this rank's part of dim 1, the sequence.
struct Batch {
  std::vector<Tensor> inputs, targets;
  // The number of items that count in the mean loss. -1: the number of labels (the first target, i64) that
  // are not -100, after the shift if there is one. With context parallelism it must be -1 for a decoder; for
  // another model it is that of the whole rows. A batch of zero rows with weight 0 is allowed.
  int64_t weight = -1;
  // False: labels (the first target, i64) are used as they are: label[i] is what token[i] must predict. True:
  // label[i] belongs to token[i] itself, as Hugging Face's collators make labels; the library shifts them by
  // one along the last dim, and the last position does not count. Without targets, a decoder's labels are its
  // tokens, which the library shifts.
  bool shift_labels = false;
  // [rows, sequence] of whole sequences, i32 or i64, in host memory; absent: each row is one document, with
  // positions 0, 1, 2, ... Consecutive tokens with one number in `documents` are a document, which attention
  // does not leave; a negative number is padding. Positions start at 0 in each document where they are
  // absent. Labels that the library makes or shifts are ignored at the last token of a document and in
  // padding.
  Tensor documents, positions;
  // A weight of each label, f32 or f64, of the labels' shape, which multiplies its loss; it is shifted with
  // the label. A model that is no decoder gets the weights after the targets, and weighs by itself. `weight`
  // -1 is then the sum of the weights of the labels that count. Another `weight` is what this rank adds to
  // the number that divides the loss, whatever the weights: if these are the negative derivatives of a loss
  // by the log-probabilities (log_probs.h), backward makes the gradients of that loss.
  Tensor token_weights;
};

struct StepOptions {
  int microbatches = 1;      // dim 0 is split evenly; the first microbatches get the remaining rows
  double max_grad_norm = 0;  // 0: no clipping
  double norm_type = 2;
  bool check_finite = true;  // all ranks skip the step if the loss or a gradient of any rank is not finite
  // A factor of the gradients, for manual loops whose backward starts from 1. train_step accepts only 1.
  double scale = 1;
  // Of a decoder's loss (ops.h, LossTerms); the loss that a step reports has them.
  double label_smoothing = 0, z_loss = 0;
  // Whether this rank asks all ranks to stop after this step. The step itself runs as usual.
  bool stop = false;
  bool replay = false;          // train_step computes loss and gradients twice and compares their bits
  bool gradient_norms = false;  // the model keeps the norm of each parameter's gradient
};

enum class Skip : uint8_t { none, no_weight /* N is 0 */, non_finite /* loss or gradients */ };

struct StepResult {
  double loss = 0;        // the mean over all ranks, equal on all; NaN if the weight is 0
  double grad_norm = -1;  // before clipping; -1: not computed (clipping is off, or there are no gradients)
  double weight = 0;      // N, the number of items that count on all ranks, or the sum of their weights
  int64_t tokens = 0;     // of the batches of all data ranks, padding included
  bool stop = false;      // whether any rank asked for it
  Skip skipped = Skip::none;  // why the step changed nothing
  double seconds = 0;
  double tokens_per_second = 0;     // over all data ranks
  double exposed_wait_seconds = 0;  // time this rank spent waiting in collectives
  int64_t step = 0;
  double lr = 0;
  double loss_scale = 1;  // the scale that the step used; 1: none
};

}  // namespace gangway

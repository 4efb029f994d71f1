// The log-probabilities that a decoder gives to labels, for losses that a caller computes from them, such as
// those of preferences. Whole logits never exist: the vocabulary is split over tp, and tokens come in chunks.
//
// Thread rule: one thread at a time; collective over the model's gangs.
#pragma once

#include <vector>

#include "parallel/model/model.h"
#include "train/types.h"

namespace gangway {

// Returns log softmax(logits)[label] for each label of the batch's rows, in the shape of the labels; 0 where
// a label does not count. The values are equal on all ranks of one data coordinate. Of the options the call
// reads `microbatches` alone.
//
// The gradients of a loss by these numbers are those of a train_step whose token_weights are the negative
// derivatives of the loss, and whose batch has the same labels.
//
// INVALID_ARGUMENT, on all ranks: what eval_step refuses, a model that is no decoder, and a batch with
// token_weights.
std::vector<double> log_probs(Model& model, const Batch& batch, const StepOptions& options, Stream& stream);

}  // namespace gangway

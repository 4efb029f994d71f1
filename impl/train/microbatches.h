// The microbatches of a step: what is wrong with them before anything runs, then forward and backward of each.
//
// Thread rule: one thread at a time; check_microbatches is local, run_microbatches collective.
#pragma once

#include "train/batch.h"
#include "train/sums.h"

namespace gangway {

// What all microbatches of a step have in common.
Context microbatch_context(Model& model, int64_t step, bool training, Stream& stream);

// Throws what forward would refuse of any microbatch, whose outputs must be a loss and its weight.
void check_microbatches(Model& model, const PreparedBatch& batch, Context ctx);

// Adds losses and weights to `sums`. A microbatch without rows still runs: its units are unsharded and its gradients
// reduced together with the others'. `ctx.training`: backward, too.
void run_microbatches(Model& model, const PreparedBatch& batch, Context ctx, StepSums& sums);

}  // namespace gangway

// The microbatches of a step: what is wrong with them before anything runs, then forward and backward of each.
//
// Thread rule: one thread at a time; check_microbatches is local, run_microbatches collective.
#pragma once

#include "train/batch.h"
#include "train/sums.h"

namespace gangway {

// What all microbatches of a step have in common.
Context microbatch_context(Model& model, int64_t step, bool training, Stream& stream);

// How many a step has that asks for so many. INVALID_ARGUMENT: a pipeline was made for another number.
int microbatches_of(Model& model, int asked);

// Throws what forward would refuse of any microbatch, whose outputs must be a loss and its weight. False: stages of a
// pipeline have not told each other yet; learn_microbatches comes in the next check phase, on all ranks.
bool check_microbatches(Model& model, const PreparedBatch& batch, Context ctx);
void learn_microbatches(Model& model, const PreparedBatch& batch, Context ctx);

// Adds losses and weights to `sums`. A microbatch without rows still runs: its units are unsharded and its gradients
// reduced together with the others'. `ctx.training`: backward, too.
void run_microbatches(Model& model, const PreparedBatch& batch, Context ctx, StepSums& sums);

}  // namespace gangway

// The microbatches of a step: functions that check them before anything runs, then run forward and backward
// of each.
//
// Thread rule: one thread at a time; check_microbatches is local, run_microbatches collective.
#pragma once

#include "parallel/pipeline/runtime.h"
#include "train/batch.h"
#include "train/sums.h"

namespace gangway {

// Returns the context that all microbatches of a step share.
Context microbatch_context(Model& model, int64_t step, bool training, Stream& stream);

// Returns the number of microbatches of a step whose caller asks for `asked`. INVALID_ARGUMENT: the model's
// pipeline was made for another number.
int microbatches_of(Model& model, int asked);

// Throws the errors that forward of any microbatch would throw; the outputs must be a loss and its weight.
// Returns false if the stages of a pipeline have not exchanged the shapes of such microbatches yet: all ranks
// then call exchange_stage_shapes in the next check phase, which exchanges them.
bool check_microbatches(Model& model, const PreparedBatch& batch, Context ctx);
void exchange_stage_shapes(Model& model, const PreparedBatch& batch, Context ctx);

// Runs forward of each microbatch, and backward if ctx.training, and adds losses and weights to `sums`. A
// microbatch without rows runs, too, because all ranks take part in unsharding its parameter groups and
// reducing their gradients.
void run_microbatches(Model& model, const PreparedBatch& batch, Context ctx, StepSums& sums);
// Runs forward of each microbatch with ctx.log_probs, and gives the outputs {loss, weight, log_probs} to
// `outputs` on the ranks of the last stage.
void run_log_probs(Model& model, const PreparedBatch& batch, Context ctx, LossSink& outputs);

}  // namespace gangway

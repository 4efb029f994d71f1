// The train layer holds the order of a step of a wrapped model, what ranks compare before it, batches and
// generation. Wrappers and their collectives (parallel) and the arithmetic of the update (optim) do not
// belong here.
//
// This header declares the steps of training and evaluation.
//
// Thread rule: one thread at a time; collective over the model's gangs.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "optim/optimizer.h"
#include "parallel/model/model.h"
#include "train/types.h"

namespace gangway {

// One training step: sums N over all ranks (in the same exchange as each rank's check status), runs forward
// and backward of each microbatch, reduces and clips the gradients, and steps the optimizer. If a rank
// refuses, all ranks throw the first error (lowest rank), or MISMATCH if they pass different options; nothing
// has changed and the gangs stay usable. A failure after that breaks every gang of the model, and peers throw
// the failing rank's error; a gang of one rank stays usable, and the gradients are empty.
//
// If the device is not the host, the step checks the ids and labels of a batch that states its weight only
// after backward, at its one wait for the device. A refusal then leaves empty gradients.
//
// MISMATCH on all ranks: values that several ranks must hold equal differ (parallel/fsdp/replica_sums.h). No
// optimizer has stepped then, and the gangs stay usable.
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

// Exchanges the values of the parameters and their averages (OptimizerOptions::ema_decay), for an evaluation,
// a save or generation. No step is taken until a second call has swapped them back. Collective; refusals are
// agreed. INVALID_STATE: the optimizer keeps no averages, or has not stepped yet.
void swap_ema(Model& model, Optimizer& optimizer, Stream& stream);

}  // namespace gangway

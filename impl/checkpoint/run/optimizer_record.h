// What state.json says of an optimizer besides its states: steps, rates, loss scale, hyperparameters.
//
// At a resume the options of the new optimizer hold, and what differs from the checkpoint is listed; steps
// and a dynamic loss scale come from the checkpoint. The base rate comes from it only if both runs
// configure the same rate, because a saved rate that differs from it was set by set_lr.
//
// Thread rule: functions; local.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/run/state.h"
#include "optim/optimizer.h"

namespace gangway {

StoredOptimizer record_of(const Optimizer& optimizer);

// Says that the optimizer is of another kind, whose states it has no place for; empty: it is of the same one.
// `name` is the part's.
std::string other_kind(const StoredOptimizer& stored, const Optimizer& optimizer, const std::string& name);
// Adds to `differences` lines such as "lr: 0.001 in the checkpoint, 0.002 now".
void resume(const StoredOptimizer& stored, Optimizer& optimizer, const std::string& name,
            std::vector<std::string>& differences);

}  // namespace gangway

// The norm of all gradients of a model, summed in one order, so that every rank and every run has the same
// bits: over a rank's parameters in the order of the tree, then over ranks in rank order. Whole parameters
// (replicas, W = 1) count once.
//
// Thread rule: one thread at a time; collective.
#pragma once

#include "parallel/fsdp/fsdp_state.h"

namespace gangway {

// INVALID_ARGUMENT: p is not in (0, 64] and not infinity. Greater powers of usual gradients underflow, and a norm of 0
// clips nothing. `what` names p.
void check_norm_type(const char* what, double p);

// (sum |g|^p)^(1/p), or max |g| for p = infinity. Gradients must be finished. 0 on a meta device.
double gradient_norm(const FsdpState& domain, Ops& ops, double p, Stream& stream);

// What gradients of this norm are scaled by: min(1, max_norm / (norm + 1e-6)), PyTorch's formula.
double clip_factor(double norm, double max_norm);

}  // namespace gangway

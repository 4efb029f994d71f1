// The norm of all gradients of a model, summed in one order, so that every rank and every run has the same
// bits: over a rank's parameters in the order of the tree, then over ranks in rank order. Whole parameters
// (replicas, W = 1) count once.
//
// Thread rule: one thread at a time; collective.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "parallel/fsdp/fsdp_state.h"

namespace gangway {

// INVALID_ARGUMENT: p is not in (0, 64] and not infinity. Greater powers of usual gradients underflow, and a norm of 0
// clips nothing. `what` names p.
void check_norm_type(const char* what, double p);

// (sum |g|^p)^(1/p), or max |g| for p = infinity, in two parts, so that a step reads the device once. Gradients must be
// finished.
class GradientNorm {
 public:
  GradientNorm(const FsdpState& domain, double p);
  size_t count() const { return groups_.size(); }  // of this rank's numbers
  // Adds the powers of this rank's pieces (or the greatest) to `powers`, f64 [count] on the device. Local.
  void add_powers(Ops& ops, const Tensor& powers, Stream& stream) const;
  // The norm, from the powers as read. Collective.
  double over_mesh(std::span<const double> powers, Stream& stream) const;

 private:
  const FsdpState& domain_;
  double p_;
  // Parameters by the axes that split them ("": equal on all ranks), in the order of the tree.
  std::map<std::string, std::vector<const Parameter*>> groups_;
};
// Both parts at once. 0 on a meta device.
double gradient_norm(const FsdpState& domain, Ops& ops, double p, Stream& stream);

// What gradients of this norm are scaled by: min(1, max_norm / (norm + 1e-6)), PyTorch's formula.
double clip_factor(double norm, double max_norm);

}  // namespace gangway

// The norm of all gradients of a model. It is summed in a fixed order, first over the parameters of a rank in
// the order of the tree and then over ranks in rank order, so that every rank and every run gets the same
// bits. A parameter that several ranks hold counts once.
//
// Thread rule: one thread at a time; collective.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "parallel/fsdp/fsdp_state.h"

namespace gangway {

// INVALID_ARGUMENT: p is not in (0, 64] and not infinity. Greater powers of usual gradients underflow, and a
// norm of 0 would clip nothing. `what` names p in the error.
void check_norm_type(const char* what, double p);

// Computes (sum |g|^p)^(1/p), or max |g| for p = infinity, in two parts, so that a training step reads the
// device only once. All reductions of gradients must have ended.
class GradientNorm {
 public:
  GradientNorm(const FsdpState& state, double p);
  size_t count() const { return by_axes_.size(); }  // number of partial sums
  // Adds the sums of powers of this rank's pieces (for infinity the maxima) to `powers`, f64 [count] on the
  // device. Local.
  void add_powers(Ops& ops, const Tensor& powers, Stream& stream) const;
  // Returns the norm from the partial sums that the host has read. Collective.
  double over_mesh(std::span<const double> powers, Stream& stream) const;

 private:
  const FsdpState& state_;
  double p_;
  // The parameters by the axes that split them ("" if all ranks have equal ones), each list in the order of
  // the tree.
  std::map<std::string, std::vector<const Parameter*>> by_axes_;
};
// Computes both parts. Returns 0 on a meta device.
double gradient_norm(const FsdpState& state, Ops& ops, double p, Stream& stream);

// Returns the 2-norm of each parameter's gradient over all ranks, before clipping; NaN for a parameter that
// is frozen. `parameters` are those of the whole model, of which a rank of a pipeline holds some. All
// reductions must have ended. Collective.
std::vector<double> gradient_norms(const FsdpState& state, const std::vector<NamedParameter>& parameters,
                                   Ops& ops, Stream& stream);

// Returns the factor that clips gradients of this norm: min(1, max_norm / (norm + 1e-6)), as in PyTorch.
double clip_factor(double norm, double max_norm);

}  // namespace gangway

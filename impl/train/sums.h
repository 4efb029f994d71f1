// The numbers of a step that decide what it does next. They are summed on the device, over microbatches and gradients,
// and read with one wait.
//
// Thread rule: one thread at a time; norm() is collective, the rest local.
#pragma once

#include <optional>
#include <vector>

#include "parallel/model/clip.h"
#include "train/step.h"

namespace gangway {

// Without a clip, whose norm would show it, the gradients are looked at. The largest of several numbers shows no NaN
// either.
bool needs_finite_flag(const StepOptions& options);

class StepSums {
 public:
  // In the model's temporaries, inside the caller's StackScope. `options` null: a loss alone, without gradients.
  StepSums(Model& model, const StepOptions* options, Stream& stream);

  void add_loss(const Values& outputs);  // {loss sum, weight} of a microbatch
  void add_gradients();  // after finish_gradients: what tells their norm and that they are finite
  bool looks_at_gradients() const { return norm_ || magnitudes_; }
  void read(const Tensor& also = {});  // waits for the device; `also`: what is read with the sums

  // After read. On a meta device nothing is known: 0, and finite.
  const Tensor& also() const { return also_; }  // in memory of the host
  bool known() const { return known_; }
  double loss() const { return values_[kLoss]; }
  double weight() const { return values_[kWeight]; }
  bool finite() const;  // of this rank's gradients; true where the norm tells
  double norm() const;  // of all gradients of the mesh

 private:
  enum Place : size_t { kLoss, kWeight, kMagnitudes, kPowers };
  Tensor place(size_t first, size_t count) const;

  Model& model_;
  Stream& stream_;
  std::optional<GradientNorm> norm_;
  bool magnitudes_ = false, known_ = false;
  Tensor sums_;                 // f64 [kPowers + those of the norm]
  std::vector<double> values_;  // the same on the host
  Tensor also_;
};

}  // namespace gangway

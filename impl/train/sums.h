// The numbers that decide what a step does next: loss, weight, gradient norm, finite flag. The device sums
// them over microbatches and gradients, and the host reads them with one wait.
//
// Thread rule: one thread at a time; norm() is collective, the rest local.
#pragma once

#include <optional>
#include <vector>

#include "parallel/fsdp/replica_sums.h"
#include "parallel/model/clip.h"
#include "parallel/model/model.h"
#include "train/types.h"

namespace gangway {

// Returns whether a step must check each gradient for NaN and infinity. A finite gradient norm would show
// that all gradients are finite; but without clipping there is no norm, and the norm for infinity, a maximum,
// may skip a NaN.
bool needs_finite_flag(const StepOptions& options);

class StepSums {
 public:
  // The sums lie in the model's temporaries, inside the caller's StackScope. `options` null: sums of the loss
  // only.
  StepSums(Model& model, const StepOptions* options, Stream& stream);

  void add_loss(const Values& outputs);  // adds the outputs {loss sum, weight} of a microbatch
  void add_gradients();  // adds the terms of the norm and of the finite flag; after finish_gradients
  // Adds up the checksums of the values that other ranks hold, too, if there are such ranks.
  void add_replicas();
  bool compares_replicas() const { return static_cast<bool>(replica_sums_); }
  bool has_gradient_sums() const { return norm_ || magnitudes_; }
  void read(const Tensor& also = {});  // waits for the device; reads the sums and `also`

  // Valid after read(). On a meta device the sums are not known: they are 0, and finite() is true.
  const Tensor& also() const { return also_; }  // read()'s argument, in host memory
  bool known() const { return known_; }
  double loss() const { return values_[kLoss]; }
  double weight() const { return values_[kWeight]; }
  ReplicaSums replicas() const { return replicas_; }
  bool finite() const;  // whether this rank's gradients are; true without needs_finite_flag
  double norm() const;  // of the gradients of all ranks of the mesh; collective

 private:
  enum Place : size_t { kLoss, kWeight, kMagnitudes, kPowers };
  Tensor place(size_t first, size_t count) const;

  Model& model_;
  Stream& stream_;
  std::optional<GradientNorm> norm_;
  bool magnitudes_ = false, known_ = false;
  Tensor sums_;                 // f64 [kPowers + norm_->count()], on the device
  std::vector<double> values_;  // the sums on the host
  Tensor replica_sums_;         // i64 [kReplicaSums], on the device; absent: there are no replicas
  ReplicaSums replicas_;
  Tensor also_;
};

}  // namespace gangway

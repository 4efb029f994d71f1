// A batch as a step uses it: checked, labels shifted and counted, cut in microbatches.
//
// Thread rule: values; local, nothing here is collective.
#pragma once

#include <cstdint>

#include "train/step.h"

namespace gangway {

class PreparedBatch {
 public:
  // Refuses (INVALID_ARGUMENT) what is no batch, and ids and labels outside of their range: these are looked at here
  // and nowhere else, with one wait for a device that is not the host. The shifted labels lie in the model's
  // temporaries, inside the caller's StackScope. `microbatches` is at least 1.
  PreparedBatch(Model& model, const Batch& batch, int microbatches, Stream& stream);

  int64_t weight() const { return weight_; }  // of all rows
  int64_t tokens() const { return tokens_; }  // i64 inputs of two dims: their elements, otherwise rows
  int count() const { return static_cast<int>(bounds_.size()) - 1; }
  // Inputs, then targets: what forward takes.
  Values microbatch(int index) const;

 private:
  void check_tensors(Model& model, const Batch& batch);
  void shift_labels(Context& ctx);
  int64_t check_values(Context& ctx, const Module& root, bool counts);

  Values values_;
  Tensor labels_;  // one of values_; absent where the first target is not i64
  size_t labels_at_ = 0;
  std::vector<int64_t> bounds_;  // rows of the microbatches
  int64_t weight_ = 0;
  int64_t tokens_ = 0;
};

}  // namespace gangway

// A batch as a step uses it: checked, labels shifted and counted, cut in microbatches.
//
// Thread rule: values; local, nothing here is collective.
#pragma once

#include <cstdint>
#include <optional>

#include "tensor/host_view.h"
#include "train/step.h"

namespace gangway {

struct Microbatch {
  Values values;        // inputs, then targets: what forward takes
  int64_t weight = -1;  // items that count; -1: not known before the loss says so
};

class PreparedBatch {
 public:
  // Refuses (INVALID_ARGUMENT) what is no batch; Model::check_forward looks at each microbatch. The shifted
  // labels lie in the model's temporaries, inside the caller's StackScope. `microbatches` is at least 1.
  PreparedBatch(Model& model, const Batch& batch, int microbatches, Stream& stream);

  int64_t weight() const { return weight_; }  // of all rows
  int64_t tokens() const { return tokens_; }  // i64 inputs of two dims: their elements, otherwise rows
  int count() const { return static_cast<int>(bounds_.size()) - 1; }
  Microbatch microbatch(int index) const;

 private:
  void check_tensors(Model& model, const Batch& batch);
  void shift_labels(Model& model, Stream& stream);
  int64_t count_labels(int64_t first_row, int64_t last_row) const;

  Values values_;
  Tensor labels_;  // one of values_, when labels say what counts; absent otherwise
  std::optional<HostView<int64_t>> host_labels_;  // absent on meta
  size_t labels_at_ = 0;
  std::vector<int64_t> bounds_;  // rows of the microbatches
  int64_t weight_ = 0;
  int64_t tokens_ = 0;
};

}  // namespace gangway

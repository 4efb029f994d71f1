// A batch as a step uses it: checked, labels shifted and counted, cut in microbatches.
//
// Thread rule: values; local, nothing here is collective.
#pragma once

#include <cstdint>

#include "nn/ids.h"
#include "train/step.h"

namespace gangway {

class PreparedBatch {
 public:
  // Refuses (INVALID_ARGUMENT) what is no batch by its shapes and dtypes. `microbatches` is at least 1.
  PreparedBatch(Model& model, const Batch& batch, int microbatches);

  // Shifts labels, refuses ids and labels outside of their range, and counts: the values are looked at here and nowhere
  // else. A device that is not the host is waited for only if the caller did not say the weight; else what it finds is read
  // with the step's sums, and judged then. After check_microbatches, which finds wrong shapes. The
  // shifted labels, and with context parallelism this rank's part of the sequences, lie in the model's temporaries,
  // inside the caller's StackScope.
  void look(Model& model, Stream& stream);

  // Of a look that was not waited for, what the device finds; else absent.
  const Tensor& found() const { return pending_ ? ids_.found : none_; }
  // What look would have refused. `found`: in memory of the host.
  void judge(const Tensor& found);

  // After look.
  int64_t weight() const { return weight_; }  // of all rows; of this rank's part of their sequences
  // Of dtypes, dims and, in host memory, values of what was given; 0: ranks do not share batches.
  uint64_t checksum() const { return checksum_; }
  int64_t tokens() const { return tokens_; }  // i64 inputs of two dims: their elements, otherwise rows
  int count() const { return static_cast<int>(bounds_.size()) - 1; }
  // Inputs, then targets: what forward takes.
  Values microbatch(int index) const;

 private:
  void check_tensors(Model& model, const Batch& batch);
  void sum_up(const Gangs& gangs);
  void shift_labels(Context& ctx);
  // With context parallelism: what has a sequence, dim 1, becomes this rank's part; first its memory, then its values.
  void make_parts(Model& model);
  void split_sequences(const Gangs& gangs, Context& ctx);

  Values values_;
  Values whole_;   // of these, before the split; empty without context parallelism
  Tensor labels_;  // one of values_; absent where the first target is not i64
  size_t labels_at_ = 0;
  bool shifts_ = false, counts_ = false;
  std::vector<int64_t> bounds_;  // rows of the microbatches
  int64_t weight_ = -1;          // before look: as the caller says
  int64_t tokens_ = 0;
  uint64_t checksum_ = 0;
  IdLook ids_;
  bool pending_ = false;
  Tensor none_;
};

}  // namespace gangway

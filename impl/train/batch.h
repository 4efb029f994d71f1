// A batch that is ready for a step: its tensors are checked, its labels are counted, and shifted where the
// caller wants it, and it is cut into microbatches.
//
// Thread rule: values; local, nothing here is collective.
#pragma once

#include <cstdint>
#include <vector>

#include "nn/documents.h"
#include "nn/ids.h"
#include "parallel/model/model.h"
#include "train/totals.h"
#include "train/types.h"

namespace gangway {

class PreparedBatch {
 public:
  // `microbatches` is at least 1. INVALID_ARGUMENT: shapes, dtypes or devices of the tensors do not make a
  // batch.
  PreparedBatch(Model& model, const Batch& batch, int microbatches);

  // Shifts the labels, checks the range of ids and labels, and counts the labels. A step checks values here
  // only. If the device is not the host and the caller gave the weight, check_values() does not wait for the
  // device: the caller reads pending_check() together with the sums of the step and passes it to
  // finish_check(). If it waits, it also refuses a decoder's labels by check_label_places. Call
  // check_microbatches before check_values(): it reports wrong shapes. The shifted labels, and with context
  // parallelism this rank's part of the sequences, lie in the model's temporaries, inside the caller's
  // StackScope.
  void check_values(Model& model, Stream& stream);

  // The result on the device of a check_values() that did not wait for it; absent if check_values() waited
  // and has called finish_check().
  const Tensor& pending_check() const { return pending_ ? ids_.found : none_; }
  // Throws the errors that check_values() postponed. `found`: the contents of pending_check() in host memory.
  void finish_check(const Tensor& found);

  // The weight of all rows; with context parallelism, of this rank's part of their sequences. Valid after
  // check_values().
  double weight() const { return sums_weights_ ? weight_sum_ : static_cast<double>(weight_); }
  // Whether tokens have weights. The caller's weight is then no number that the model's loss must have.
  bool has_token_weights() const { return weighs_; }
  // Whether the caller gave the weight of sequences that ranks of cp share: weight() is then all of it on the
  // first of them and 0 on the others, whatever their losses say.
  bool shares_weight() const { return shares_weight_; }
  // A hash of the given tensors: dtypes, dims and, of tensors in host memory, values. 0: ranks do not share
  // batches.
  uint64_t checksum() const { return checksum_; }
  // The number of elements of inputs[0] if it is i64 with two dims or more, else the number of its rows.
  int64_t tokens() const { return tokens_; }
  const Tensor& labels() const { return labels_; }  // this rank's part; absent if there are none
  int64_t rows() const { return bounds_.back(); }
  // The first row of a microbatch; for `index` = count(), rows().
  int64_t first_row(int index) const { return bounds_[static_cast<size_t>(index)]; }
  int count() const { return static_cast<int>(bounds_.size()) - 1; }
  // What this rank tells the others in the check phase. `known`: its pipeline knows all shapes. Valid after
  // check_values().
  BatchTotals totals(bool known) const;
  // Returns the arguments of forward: the inputs, then the targets.
  Values microbatch(int index) const;
  // Returns the documents of each microbatch's rows; empty if the batch gives neither documents nor
  // positions.
  const std::vector<Documents>& documents() const { return documents_; }

 private:
  void check_tensors(Model& model, const Batch& batch);
  void find_labels(const Batch& batch, bool decoder);
  void add_token_weights(const Batch& batch, Device& device);
  void compute_checksum(const Gangs& gangs, const Batch& batch);
  void find_documents(Model& model, const Batch& batch);
  void ignore_labels_at_bounds(Context& ctx);
  void shift_labels(Context& ctx);
  void shift_weights(Context& ctx);
  // With context parallelism, each tensor that has a sequence (dim 1) is replaced by this rank's part of it:
  // make_parts allocates the parts, split_sequences writes their values.
  void make_parts(Model& model);
  void split_sequences(Model& model, Context& ctx);

  Values values_;
  Values whole_;   // values_ before the sequences are split; empty without context parallelism
  Tensor labels_;  // one of values_, or a decoder's tokens; absent if the first target is not i64
  size_t labels_at_ = 0;
  bool shifts_ = false, counts_ = false, checks_places_ = false, shares_weight_ = false;
  bool weighs_ = false;        // the last one of values_ has the weights of tokens
  bool sums_weights_ = false;  // the batch's weight is their sum
  double weight_sum_ = 0;
  std::vector<Documents> documents_;
  std::vector<int64_t> bounds_;  // microbatch i has rows [bounds_[i], bounds_[i + 1])
  int64_t weight_ = -1;          // before finish_check(): the caller's, or -1
  int64_t tokens_ = 0;
  uint64_t checksum_ = 0;
  PendingIdCheck ids_;
  bool pending_ = false;
  Tensor none_;
};

}  // namespace gangway

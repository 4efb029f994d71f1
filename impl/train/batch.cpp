#include "train/batch.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/philox.h"
#include "nn/gradient.h"
#include "nn/ids.h"
#include "nn/loss.h"
#include "tensor/host_view.h"
#include "train/label_places.h"
#include "train/sequence_parts.h"

namespace gangway {
namespace {

void check_tensor(const Tensor& tensor, const char* what, size_t index, Device& device) {
  if (!tensor) fail(Code::invalid_argument, "batch.", what, "[", index, "] is absent");
  if (tensor.rank() < 1)
    fail(Code::invalid_argument, "batch.", what, "[", index, "] has no dims, the first is the batch");
  if (!tensor.contiguous())
    fail(Code::invalid_argument, "batch.", what, "[", index, "] (", tensor.text(), ") is not contiguous");
  if (tensor.device().kind() != device.kind())
    fail(Code::invalid_argument, "batch.", what, "[", index, "] is on ", tensor.device().name(),
         ", the model on ", device.name());
}

// Both in host memory.
double sum_of_weights(const Tensor& labels, const Tensor& weights) {
  double sum = 0;
  for (int64_t i = 0; i < labels.count(); ++i) {
    if (labels.data<int64_t>()[i] == kIgnoredLabel) continue;
    sum += weights.dtype() == DType::f64 ? weights.data<double>()[i]
                                         : static_cast<double>(weights.data<float>()[i]);
  }
  return sum;
}

}  // namespace

PreparedBatch::PreparedBatch(Model& model, const Batch& batch, int microbatches) : weight_(batch.weight) {
  if (batch.weight < -1) fail(Code::invalid_argument, "batch.weight = ", batch.weight, " is below -1");
  check_tensors(model, batch);
  find_labels(batch, decoder_options(model.root()) != nullptr);
  add_token_weights(batch, model.device());
  compute_checksum(model.gangs(), batch);
  bounds_ = balanced_bounds(values_[0].dim(0), microbatches);
  find_documents(model, batch);
  if (model.gangs().mesh().degree(Axis::cp) > 1) make_parts(model);

  const int64_t rows = values_[0].dim(0);
  tokens_ = values_[0].dtype() == DType::i64 && values_[0].rank() > 1 ? values_[0].count() : rows;
}

void PreparedBatch::find_labels(const Batch& batch, bool decoder) {
  labels_at_ = batch.inputs.size();
  const bool tokens_alone = decoder && batch.targets.empty() && labels_at_ == 1;
  if (tokens_alone) values_.push_back(values_[0]);
  const Tensor given = values_.size() > labels_at_ ? values_[labels_at_] : Tensor();
  // The loss of a decoder counts labels, so that a weight that the caller gave is checked against their
  // number.
  counts_ = batch.weight == -1 || decoder;
  if ((counts_ || batch.shift_labels) && !given)
    fail(Code::invalid_argument, "batch.weight = ", batch.weight,
         ", batch.shift_labels = ", batch.shift_labels ? 1 : 0,
         ", but what counts are labels, and there is no target");
  // The decoder itself refuses tokens of another type or shape, by check_microbatches.
  if (!tokens_alone && (counts_ || batch.shift_labels) && given.dtype() != DType::i64)
    fail(Code::invalid_argument, "targets[0] is ", name(given.dtype()), ", but labels are i64",
         batch.weight == -1 ? "; for other targets batch.weight says how many items count" : "");
  if (!tokens_alone && batch.shift_labels && given.rank() < 2)
    fail(Code::invalid_argument, "batch.shift_labels is 1, but the labels are ", given.text(),
         "; only labels with two dims or more are shifted");
  if (given && given.dtype() == DType::i64) labels_ = given;
  shifts_ = labels_ && labels_.rank() > 1 && (batch.shift_labels || tokens_alone);
  checks_places_ = decoder && !tokens_alone;
}

void PreparedBatch::add_token_weights(const Batch& batch, Device& device) {
  const Tensor& weights = batch.token_weights;
  if (!weights) return;
  check_tensor(weights, "token_weights", 0, device);
  if (!labels_)
    fail(Code::invalid_argument, "batch.token_weights is given, but there are no labels (targets[0], i64)");
  if ((weights.dtype() != DType::f32 && weights.dtype() != DType::f64) ||
      !(weights.shape() == labels_.shape()))
    fail(Code::invalid_argument, "batch.token_weights is ", weights.text(),
         ", wanted f32 or f64, one for each of the labels ", labels_.text());
  values_.push_back(weights);
  weighs_ = true;
  sums_weights_ = weight_ == -1;
}

void PreparedBatch::check_values(Model& model, Stream& stream) {
  Context ctx = model.run().context(stream);
  Tensor tokens, given;  // as the caller gave them
  if (checks_places_) {
    tokens = (whole_.empty() ? values_ : whole_)[0];
    given = labels_;
  }
  if (shifts_) shift_labels(ctx);
  if (!whole_.empty()) split_sequences(model, ctx);
  std::vector<IdRule> rules = model.root().id_rules();
  rules.resize(values_.size());
  if (counts_ && rules[labels_at_].what == nullptr) rules[labels_at_] = {"label", -1, kIgnoredLabel};
  ids_ = start_id_check(ctx, rules, values_);
  const bool on_host = is_on_host(model.device().memory_kind());
  // Not every stage of a pipeline reads its sums, so that a pipeline waits here.
  pending_ = ids_.found && !on_host && weight_ > 0 && model.pipeline() == nullptr;
  if (pending_) return;
  if (!ids_.found) {  // on meta there are no values, and some modules take no ids
    sums_weights_ = false;
    return finish_check(Tensor());
  }
  // The host waits for the verdict on the ids, and reads the labels in the same wait.
  const std::vector<Tensor> read =
      read_on_host(std::array{ids_.found, tokens, given, sums_weights_ ? labels_ : Tensor(),
                              sums_weights_ ? values_.back() : Tensor()},
                   stream);
  finish_check(read[0]);
  if (sums_weights_) weight_sum_ = sum_of_weights(read[3], read[4]);
  if (given) check_label_places(read[1], read[2], shifts_);
}

void PreparedBatch::finish_check(const Tensor& found) {
  const std::vector<IdRange> all = finish_id_check(ids_, found);
  if (!counts_) return;
  const int64_t counted = !ids_.found ? labels_.count() : all[labels_at_].count;  // on meta: not found
  if (weighs_ && weight_ != -1) return;
  if (weight_ != -1 && weight_ != counted)
    fail(Code::invalid_argument, "batch.weight = ", weight_, ", but ", counted, " labels count",
         shifts_ ? " after the shift" : "");
  weight_ = counted;
}

BatchTotals PreparedBatch::totals(bool known) const {
  BatchTotals totals;
  totals.weight = weight();
  totals.tokens = tokens();
  totals.batch = checksum();
  totals.unknown = !known;
  totals.shares = shares_weight() && !has_token_weights();
  totals.rows = static_cast<int32_t>(rows());
  return totals;
}

Values PreparedBatch::microbatch(int index) const {
  const int64_t first = bounds_[static_cast<size_t>(index)], last = bounds_[static_cast<size_t>(index) + 1];
  Values part;
  for (const Tensor& value : values_) part.push_back(value.slice(0, first, last));
  return part;
}

void PreparedBatch::check_tensors(Model& model, const Batch& batch) {
  if (batch.inputs.empty()) fail(Code::invalid_argument, "batch.inputs is empty");
  for (size_t i = 0; i < batch.inputs.size(); ++i) check_tensor(batch.inputs[i], "inputs", i, model.device());
  for (size_t i = 0; i < batch.targets.size(); ++i)
    check_tensor(batch.targets[i], "targets", i, model.device());
  values_ = batch.inputs;
  values_.insert(values_.end(), batch.targets.begin(), batch.targets.end());
  const int64_t rows = values_[0].dim(0);
  for (size_t i = 1; i < values_.size(); ++i) {
    if (values_[i].dim(0) == rows) continue;
    const bool input = i < batch.inputs.size();
    fail(Code::invalid_argument, "batch.", input ? "inputs[" : "targets[",
         input ? i : i - batch.inputs.size(), "] has ", values_[i].dim(0), " rows, inputs[0] has ", rows);
  }
}

// The checksum is needed only if several ranks take the same batch.
void PreparedBatch::compute_checksum(const Gangs& gangs, const Batch& batch) {
  const Mesh& mesh = gangs.mesh();
  Values given = values_;
  for (const Tensor& rows : {batch.documents, batch.positions})
    if (rows) given.push_back(rows);
  if (mesh.degree(Axis::tp) * mesh.degree(Axis::cp) * mesh.degree(Axis::pp) > 1)
    checksum_ = checksum_of(given);
}

void PreparedBatch::find_documents(Model& model, const Batch& batch) {
  if (!batch.documents && !batch.positions) return;
  const Shape& inputs = values_[0].shape();
  for (const auto& [what, given] :
       {std::pair("documents", batch.documents), std::pair("positions", batch.positions)})
    if (given && (inputs.rank() < 2 || !(given.shape() == Shape{inputs[0], inputs[1]})))
      fail(Code::invalid_argument, "batch.", what, " is ", given.text(), ", but batch.inputs[0] is ",
           values_[0].text(), "; it has a number for each token, [rows, sequence]");
  if (batch.documents && shifts_ && !(labels_.shape() == batch.documents.shape()))
    fail(Code::invalid_argument, "batch.documents is ", batch.documents.text(), ", but the labels are ",
         labels_.text(), "; only labels of one shape with them are shifted");
  DocumentRows rows{batch.documents, batch.positions};
  if (const DecoderOptions* decoder = decoder_options(model.root()))
    rows.most_positions = std::min(rows.most_positions, decoder->max_positions);
  const Gangs& gangs = model.gangs();
  const Documents all(rows, {gangs.coordinate(Axis::cp), gangs.mesh().degree(Axis::cp)});
  for (size_t i = 0; i + 1 < bounds_.size(); ++i) documents_.push_back(all.rows(bounds_[i], bounds_[i + 1]));
}

// The label of position s is the token at s + 1; the last position has none and is ignored.
void PreparedBatch::shift_labels(Context& ctx) {
  const Tensor given = labels_;
  labels_ = ctx.temporaries.allocate(DType::i64, given.shape());
  (whole_.empty() ? values_ : whole_)[labels_at_] = labels_;
  if (given.count() == 0) return;
  ctx.ops.fill(labels_, kIgnoredLabel, ctx.stream);
  const int last_dim = given.rank() - 1;
  const int64_t length = given.dim(-1);
  ctx.ops.cast(given.slice(last_dim, 1, length), labels_.slice(last_dim, 0, length - 1), ctx.stream);
  if (weighs_) shift_weights(ctx);
  ignore_labels_at_bounds(ctx);
}

// A weight goes with its label; that of the last position does not count.
void PreparedBatch::shift_weights(Context& ctx) {
  Tensor& weights = (whole_.empty() ? values_ : whole_).back();
  const Tensor given = weights;
  weights = ctx.temporaries.allocate(given.dtype(), given.shape());
  ctx.ops.fill(weights, 0, ctx.stream);
  const int last_dim = given.rank() - 1;
  const int64_t length = given.dim(-1);
  ctx.ops.cast(given.slice(last_dim, 1, length), weights.slice(last_dim, 0, length - 1), ctx.stream);
}

void PreparedBatch::ignore_labels_at_bounds(Context& ctx) {
  if (documents_.empty()) return;
  const int64_t length = labels_.dim(1);
  for (const Document& document : documents_[0].all()) {
    const int64_t first = document.is_padding ? document.first : document.end - 1;
    if (first == length - 1) continue;  // the last position of a row is ignored in any case
    const Tensor row = labels_.slice(0, document.row, document.row + 1);
    ctx.ops.fill(row.slice(1, first, document.end), kIgnoredLabel, ctx.stream);
  }
}

void PreparedBatch::make_parts(Model& model) {
  const int cp = model.gangs().mesh().degree(Axis::cp);
  if (weight_ != -1 && counts_ && !weighs_)
    fail(Code::not_supported, "batch.weight is given, but with cp ", cp,
         " each rank counts the labels of its own part of the sequences; leave it at -1");
  part_tokens(model, specs_of(values_), "batch.inputs");
  // The caller's weight is that of the whole rows, which are equal on all ranks of cp.
  shares_weight_ = weight_ != -1;
  if (shares_weight_ && model.gangs().coordinate(Axis::cp) != 0) weight_ = 0;
  whole_ = values_;
  for (Tensor& value : values_)
    if (value.rank() > 1)
      value = model.temporaries().allocate(value.dtype(), part_shape(model, value.shape()));
}

void PreparedBatch::split_sequences(Model& model, Context& ctx) {
  for (size_t i = 0; i < values_.size(); ++i)
    if (values_[i].rank() > 1) take_part(model, whole_[i], values_[i], ctx.stream);
  if (labels_) labels_ = values_[labels_at_];
}

}  // namespace gangway

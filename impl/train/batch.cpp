#include "train/batch.h"

#include "base/philox.h"
#include "nn/gradient.h"
#include "nn/ids.h"
#include "nn/loss.h"
#include "parallel/context/balance.h"
#include "tensor/host_view.h"

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

}  // namespace

PreparedBatch::PreparedBatch(Model& model, const Batch& batch, int microbatches) : weight_(batch.weight) {
  if (batch.weight < -1) fail(Code::invalid_argument, "batch.weight = ", batch.weight, " is below -1");
  check_tensors(model, batch);
  labels_at_ = batch.inputs.size();
  if (!batch.targets.empty() && batch.targets[0].dtype() == DType::i64) labels_ = batch.targets[0];
  shifts_ = labels_ && !batch.shifted && labels_.rank() > 1;
  compute_checksum(model.gangs());
  if (model.gangs().mesh().degree(Axis::cp) > 1) make_parts(model);

  const int64_t rows = values_[0].dim(0);
  bounds_ = balanced_bounds(rows, microbatches);
  tokens_ = values_[0].dtype() == DType::i64 && values_[0].rank() > 1 ? values_[0].count() : rows;
  // The loss of a decoder counts labels, so that a weight that the caller gave is checked against their
  // number.
  counts_ = batch.weight == -1 || decoder_options(model.root()) != nullptr;
  if (counts_ && batch.targets.empty())
    fail(Code::invalid_argument, "batch.weight = ", batch.weight,
         ", but what counts are labels, and there is no target");
  if (counts_ && !labels_)
    fail(Code::invalid_argument, "targets[0] is ", name(batch.targets[0].dtype()), ", but labels are i64");
}

void PreparedBatch::check_values(Model& model, Stream& stream) {
  Context ctx = model.run().context(stream);
  if (shifts_) shift_labels(ctx);
  if (!whole_.empty()) split_sequences(model.gangs(), ctx);
  std::vector<IdRule> rules = model.root().id_rules();
  rules.resize(values_.size());
  if (counts_ && rules[labels_at_].what == nullptr) rules[labels_at_] = {"label", -1, kIgnoredLabel};
  ids_ = start_id_check(ctx, rules, values_);
  const bool on_host = is_on_host(model.device().memory_kind());
  // Not every stage of a pipeline reads its sums, so that a pipeline waits here.
  pending_ = ids_.found && !on_host && weight_ > 0 && model.pipeline() == nullptr;
  if (!pending_) finish_check(ids_.found ? read_on_host(ids_.found, stream) : Tensor());
}

void PreparedBatch::finish_check(const Tensor& found) {
  const std::vector<IdRange> all = finish_id_check(ids_, found);
  if (!counts_) return;
  const int64_t counted = !ids_.found ? labels_.count() : all[labels_at_].count;  // on meta: not found
  if (weight_ != -1 && weight_ != counted)
    fail(Code::invalid_argument, "batch.weight = ", weight_, ", but ", counted,
         " labels count after the shift");
  weight_ = counted;
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

// The checksum is needed only if several ranks take the same batch. It covers the dtype and dims of tensors
// that are not in host memory, but not their values: reading them would make the host wait for the device.
void PreparedBatch::compute_checksum(const Gangs& gangs) {
  const Mesh& mesh = gangs.mesh();
  if (mesh.degree(Axis::tp) * mesh.degree(Axis::cp) * mesh.degree(Axis::pp) == 1) return;
  uint64_t sum = 1;
  for (const Tensor& value : values_) {
    sum = philox_key(sum, value.text());
    if (value.on_host() && value.raw() != nullptr) sum = philox_key(sum, {value.data<char>(), value.bytes()});
  }
  checksum_ = sum == 0 ? 1 : sum;
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
}

void PreparedBatch::make_parts(Model& model) {
  const int cp = model.gangs().mesh().degree(Axis::cp);
  if (weight_ != -1)
    fail(Code::not_supported, "batch.weight is given, but with cp ", cp,
         " each rank counts the labels of its own part of the sequences; leave it at -1");
  if (values_[0].rank() < 2)
    fail(Code::invalid_argument, "batch.inputs[0] is ", values_[0].text(), "; with cp ", cp,
         " its dim 1 is the sequence that ranks share");
  const int64_t tokens = values_[0].dim(1);
  const DecoderOptions* const decoder = decoder_options(model.root());
  if (decoder != nullptr) check_sequence_length(*decoder, tokens, "batch.inputs[0]");
  check_sequence(tokens, cp);
  whole_ = values_;
  for (Tensor& value : values_) {
    if (value.rank() < 2) continue;
    if (value.dim(1) != tokens)
      fail(Code::invalid_argument, "the batch holds ", value.text(), ", but inputs[0] has sequences of ",
           tokens, " tokens; with cp ", cp, " all are split along dim 1");
    Shape part = value.shape();
    part[1] = tokens / cp;
    value = model.temporaries().allocate(value.dtype(), part);
  }
}

void PreparedBatch::split_sequences(const Gangs& gangs, Context& ctx) {
  for (size_t i = 0; i < values_.size(); ++i)
    if (values_[i].rank() > 1)
      split_sequence(ctx.ops, whole_[i], values_[i], 1, gangs.coordinate(Axis::cp),
                     gangs.mesh().degree(Axis::cp), ctx.stream);
  if (labels_) labels_ = values_[labels_at_];
}

}  // namespace gangway

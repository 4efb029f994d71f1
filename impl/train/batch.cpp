#include "train/batch.h"

#include <algorithm>

namespace gangway {
namespace {

constexpr int64_t kIgnored = -100;

bool on_meta(const Tensor& tensor) { return tensor.device().kind() == DeviceKind::meta; }

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

PreparedBatch::PreparedBatch(Model& model, const Batch& batch, int microbatches, Stream& stream) {
  if (batch.weight < -1) fail(Code::invalid_argument, "batch.weight = ", batch.weight, " is below -1");
  check_tensors(model, batch);
  labels_at_ = batch.inputs.size();
  if (!batch.targets.empty() && batch.targets[0].dtype() == DType::i64) labels_ = batch.targets[0];
  if (labels_ && !batch.shifted && labels_.rank() > 1) shift_labels(model, stream);
  if (labels_ && !on_meta(labels_)) host_labels_.emplace(labels_, stream);

  const int64_t rows = values_[0].dim(0);
  bounds_ = balanced_bounds(rows, microbatches);
  tokens_ = values_[0].dtype() == DType::i64 && values_[0].rank() > 1 ? values_[0].count() : rows;
  const bool llama =
      llama_config(model.root()) != nullptr;  // its loss counts labels, whatever the batch says
  const bool counts = batch.weight == -1 || llama;
  if (counts && !labels_)
    fail(Code::invalid_argument, "batch.weight = ", batch.weight, ", but what counts are labels, and ",
         batch.targets.empty() ? "there is no target" : "the first target is not i64");
  weight_ = counts ? count_labels(0, rows) : batch.weight;
  if (batch.weight != -1 && batch.weight != weight_)
    fail(Code::invalid_argument, "batch.weight = ", batch.weight, ", but ", weight_,
         " labels count after the shift");
  // A weight that the caller gave need not be that of the labels; of a part of the rows it says nothing.
  if (batch.weight != -1 && !llama) labels_ = Tensor();
}

Microbatch PreparedBatch::microbatch(int index) const {
  const int64_t first = bounds_[static_cast<size_t>(index)], last = bounds_[static_cast<size_t>(index) + 1];
  Microbatch part;
  for (const Tensor& value : values_) part.values.push_back(value.slice(0, first, last));
  part.weight = labels_ ? count_labels(first, last) : count() == 1 ? weight_ : -1;
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

// Position s predicts the token at s + 1; the last one predicts nothing.
void PreparedBatch::shift_labels(Model& model, Stream& stream) {
  const Tensor given = labels_;
  labels_ = model.temporaries().allocate(DType::i64, given.shape());
  values_[labels_at_] = labels_;
  if (on_meta(given) || given.count() == 0) return;
  const int64_t length = given.shape().back();
  const HostView<int64_t> from(given, stream);
  std::vector<int64_t> to(from.begin(), from.end());
  for (auto row = to.begin(); row != to.end(); row += length)
    *std::shift_left(row, row + length, 1) = kIgnored;
  model.device().copy(labels_.raw(), to.data(), labels_.bytes(), stream);
  stream.synchronize();  // `to` ends here
}

int64_t PreparedBatch::count_labels(int64_t first_row, int64_t last_row) const {
  const int64_t row = labels_.shape().count_from(1);
  const int64_t count = (last_row - first_row) * row;
  if (!host_labels_) return count;
  const int64_t* const first = host_labels_->begin() + first_row * row;
  return count - std::count(first, first + count, kIgnored);
}

}  // namespace gangway

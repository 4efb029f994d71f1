#include "train/sums.h"

#include <cmath>

#include "tensor/host_view.h"

namespace gangway {
bool needs_finite_flag(const StepOptions& options) {
  return options.check_finite && (options.max_grad_norm == 0 || std::isinf(options.norm_type));
}

StepSums::StepSums(Model& model, const StepOptions* options, Stream& stream)
    : model_(model), stream_(stream), magnitudes_(options != nullptr && needs_finite_flag(*options)) {
  if (options != nullptr && options->max_grad_norm > 0) norm_.emplace(model.fsdp(), options->norm_type);
  values_.assign(kPowers + (norm_ ? norm_->count() : 0), 0);
  sums_ = model.temporaries().allocate(DType::f64, Shape{static_cast<int64_t>(values_.size())});
  model.ops().fill(sums_, 0, stream);
  if (options == nullptr || !has_replicas(model.fsdp())) return;
  replica_sums_ = model.temporaries().allocate(DType::i64, Shape{kReplicaSums});
  model.ops().fill(replica_sums_, 0, stream);
}

Tensor StepSums::place(size_t first, size_t count) const {
  return sums_.slice(0, static_cast<int64_t>(first), static_cast<int64_t>(first + count));
}

void StepSums::add_loss(const Values& outputs) {
  model_.ops().add(outputs[0], 1, place(kLoss, 1), stream_);
  model_.ops().add(outputs[1], 1, place(kWeight, 1), stream_);
}

void StepSums::add_gradients() {
  if (norm_) norm_->add_powers(model_.ops(), place(kPowers, norm_->count()), stream_);
  if (!magnitudes_) return;
  // The sum of all magnitudes is NaN or infinite if any gradient is.
  for (const NamedParameter& named : model_.inspect().parameters()) {
    const Parameter& p = *named.parameter;
    if (!p.trainable || p.shard_grad == nullptr || !p.shard_grad->written) continue;
    const Tensor& gradient = p.shard_grad->tensor;
    if (gradient.count() != 0) model_.ops().norm_power(gradient, 1, place(kMagnitudes, 1), stream_);
  }
}

void StepSums::add_replicas() {
  if (!compares_replicas()) return;
  model_.run().order(stream_);
  add_replica_sums(model_.fsdp(), model_.ops(), replica_sums_, stream_);
}

void StepSums::read(const Tensor& also) {
  if (model_.device().kind() == DeviceKind::meta) return;
  const Tensor wanted[] = {sums_, also, replica_sums_};
  const std::vector<Tensor> host = read_on_host(wanted, stream_);
  const double* const values = host[0].data<double>();
  values_.assign(values, values + host[0].count());
  also_ = host[1];
  if (host[2]) replicas_ = replica_sums({host[2].data<int64_t>(), kReplicaSums});
  known_ = true;
}

bool StepSums::finite() const { return std::isfinite(values_[kMagnitudes]); }

double StepSums::norm() const { return norm_->over_mesh(std::span(values_).subspan(kPowers), stream_); }

}  // namespace gangway

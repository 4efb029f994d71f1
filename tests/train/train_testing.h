// Models on ranks that are threads, and the values of the reference files.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/expect_error.h"
#include "gang/thread_ranks.h"
#include "nn/reference_file.h"
#include "support/host_memory.h"
#include "train/generate.h"
#include "train/step.h"

namespace gangway::test {

// The reference files apply weight decay to all parameters. The library leaves out 1-d parameters unless a
// rule names them.
inline OptimizerOptions optimizer_of(const Reference& reference) {
  OptimizerOptions options;
  options.lr = reference.optimizer.lr;
  options.hyperparameters = {{"beta1", reference.optimizer.beta1},
                             {"beta2", reference.optimizer.beta2},
                             {"eps", reference.optimizer.eps}};
  options.weight_decay = reference.optimizer.weight_decay;
  options.rules = {{"**", 1, options.weight_decay}};
  return options;
}

inline GangsPtr make_gangs(Gang& root, int replicas = 1) {
  MeshOptions mesh;
  mesh.dp_replicate = replicas;
  return create_gangs(root.shared_from_this(), mesh);
}

inline ParallelOptions parallel(Strategy strategy, DType master = DType::f64) {
  ParallelOptions options;
  options.shard.strategy = strategy;
  options.master_dtype = master;
  options.seed = 3;
  return options;
}

inline std::unique_ptr<Model> make_model(const ModulePtr& module, const GangsPtr& gangs,
                                         const ParallelOptions& options) {
  auto model = std::make_unique<Model>(module, gangs);
  model->build().parallelize(options);
  return model;
}

// A row-major copy of `from` on the model's device.
template <typename T>
Tensor tensor_of(Model& model, DType dtype, const Shape& shape, const T* from) {
  const Tensor tensor = Tensor::allocate(model.device().allocator(), dtype, shape);
  HostMemory host(tensor);
  if (shape.count() != 0) std::memcpy(host.data<T>(), from, tensor.bytes());
  host.write();
  return tensor;
}

inline void assign_initial(Model& model, const Reference& reference) {
  for (const NamedParameter& named : model.inspect().parameters()) {
    const double* values = reference.values("init." + named.name).data();
    model.inspect().assign(*named.parameter, tensor_of(model, DType::f64, named.parameter->shape, values),
                           model.device().stream());
  }
}

// Rows [first, last) of batch `step` of the reference.
inline Batch batch_rows(Model& model, const Reference& reference, int64_t step, int64_t first, int64_t last) {
  const Shape shape{last - first, reference.sequence()};
  Batch batch;
  batch.inputs = {tensor_of(model, DType::i64, shape, reference.rows("tokens", first, last, step).data())};
  batch.targets = {tensor_of(model, DType::i64, shape, reference.rows("labels", first, last, step).data())};
  return batch;
}

// The rows of batch `step` that belong to this data-parallel rank.
inline Batch own_rows(Model& model, const Reference& reference, int64_t step) {
  int index = 0, count = 1;
  model.gangs().data_shard(&index, &count);
  const std::vector<int64_t> bounds = balanced_bounds(reference.batch(), count);
  return batch_rows(model, reference, step, bounds[static_cast<size_t>(index)],
                    bounds[static_cast<size_t>(index) + 1]);
}

inline std::vector<double> gathered(Model& model, const Parameter& parameter) {
  const Tensor whole = model.inspect().gather(parameter, model.device().stream());
  const HostMemory host(whole);
  std::vector<double> out(static_cast<size_t>(whole.count()));
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = whole.dtype() == DType::f64 ? host.data<double>()[i] : host.data<float>()[i];
  return out;
}

// a - b| / |b|.
inline double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return a.size() == b.size() ? std::sqrt(difference / (norm > 0 ? norm : 1)) : INFINITY;
}

inline std::vector<double> gathered_gradient(Model& model, const Parameter& parameter) {
  const Tensor whole = model.inspect().gather_gradient(parameter, model.device().stream());
  const HostMemory host(whole);
  std::vector<double> out(static_cast<size_t>(whole.count()));
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = whole.dtype() == DType::f64 ? host.data<double>()[i] : host.data<float>()[i];
  return out;
}

}  // namespace gangway::test

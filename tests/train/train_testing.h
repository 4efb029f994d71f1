// Models on thread ranks, and what the reference files say about them.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "checkpoint/safetensors.h"
#include "gang/thread_ranks.h"
#include "train/step.h"

namespace gangway::test {

// A file of tests/data: a Llama, its batches and what PyTorch made of them, in f64.
class Reference {
 public:
  explicit Reference(const std::string& name)
      : file_(std::string(GANGWAY_TEST_DATA "/") + name + ".safetensors") {
    settings = nlohmann::json::parse(file_.metadata().at("config"));
    config.vocab = settings.at("vocab_size");
    config.dim = settings.at("hidden_size");
    config.layers = settings.at("num_hidden_layers");
    config.heads = settings.at("num_attention_heads");
    config.kv_heads = settings.at("num_key_value_heads");
    config.ffn = settings.at("intermediate_size");
    config.eps = settings.at("rms_norm_eps");
    config.rope.theta = settings.at("rope_theta");
    config.max_positions = settings.at("max_position_embeddings");
    config.qkv_bias = settings.at("attention_bias");
    config.tied = settings.at("tie_word_embeddings");
  }

  const Shape& shape(const std::string& name) const { return file_.tensors().at(name).shape; }
  template <typename T>
  std::vector<T> read(const std::string& name) const {
    const StoredTensor& stored = file_.tensors().at(name);
    EXPECT_EQ(item_bytes(stored.dtype), sizeof(T));
    std::vector<T> out((stored.last - stored.first) / sizeof(T));
    file_.read(stored, 0, stored.last - stored.first, out.data());
    return out;
  }

  // All parameters decay in the files: rules that name the 1-d ones, too.
  OptimizerOptions optimizer() const {
    OptimizerOptions options;
    options.lr = settings.at("lr");
    options.beta1 = settings.at("betas")[0];
    options.beta2 = settings.at("betas")[1];
    options.eps = settings.at("eps");
    options.weight_decay = settings.at("weight_decay");
    options.rules = {{"model.norm.weight"}, {"model.layers.*.*.weight"}};
    if (config.qkv_bias) options.rules.push_back({"model.layers.*.self_attn.*.bias"});
    return options;
  }
  double max_grad_norm() const { return settings.at("max_grad_norm"); }

  LlamaConfig config;
  nlohmann::json settings;

 private:
  SafetensorsFile file_;
};

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
  model->parallelize(options);
  return model;
}

// Owned row-major copy of values on the model's device.
template <typename T>
Tensor tensor_of(Model& model, DType dtype, const Shape& shape, const T* from) {
  const Tensor tensor = Tensor::allocate(model.device().allocator(), dtype, shape);
  if (shape.count() != 0) std::memcpy(tensor.raw(), from, tensor.bytes());
  return tensor;
}

inline void assign_initial(Model& model, const Reference& reference) {
  for (const NamedParameter& named : model.parameters()) {
    const std::vector<double> values = reference.read<double>("init." + named.name);
    model.assign(*named.parameter, tensor_of(model, DType::f64, named.parameter->shape, values.data()),
                 model.device().stream());
  }
}

// Rows [first, last) of step `step` of the reference's batches.
inline Batch batch_rows(Model& model, const Reference& reference, int64_t step, int64_t first, int64_t last) {
  const Shape& shape = reference.shape("tokens");
  const std::vector<int64_t> tokens = reference.read<int64_t>("tokens"),
                             labels = reference.read<int64_t>("labels");
  const int64_t at = (step * shape[1] + first) * shape[2];
  Batch batch;
  batch.inputs = {tensor_of(model, DType::i64, Shape{last - first, shape[2]}, tokens.data() + at)};
  batch.targets = {tensor_of(model, DType::i64, Shape{last - first, shape[2]}, labels.data() + at)};
  batch.shifted = true;
  return batch;
}

// This data coordinate's share of a batch.
inline Batch own_rows(Model& model, const Reference& reference, int64_t step) {
  int index = 0, count = 1;
  model.gangs().data_shard(&index, &count);
  const std::vector<int64_t> bounds = balanced_bounds(reference.shape("tokens")[1], count);
  return batch_rows(model, reference, step, bounds[static_cast<size_t>(index)],
                    bounds[static_cast<size_t>(index) + 1]);
}

inline std::vector<double> gathered(Model& model, const Parameter& parameter) {
  const Tensor whole = model.gather(parameter, model.device().stream());
  std::vector<double> out(static_cast<size_t>(whole.count()));
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = whole.dtype() == DType::f64 ? whole.data<double>()[i] : whole.data<float>()[i];
  return out;
}

// |a - b| / |b|.
inline double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return a.size() == b.size() ? std::sqrt(difference / (norm > 0 ? norm : 1)) : INFINITY;
}

template <typename Call>
Error error_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  return Error(Code::ok, "");
}

}  // namespace gangway::test

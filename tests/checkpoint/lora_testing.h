// The Llama of tests/data/families with the adapters of tests/data/lora, over a mesh.
#pragma once

#include "base/error_of.h"
#include "checkpoint/config_json.h"
#include "checkpoint/lora_config.h"
#include "checkpoint/lora_files.h"
#include "checkpoint/model_io.h"
#include "checkpoint/safetensors.h"
#include "data/data_path.h"
#include "parallel/model/lora.h"

namespace gangway::test {

inline std::string base_folder() { return test_data("families/llama"); }
inline std::string adapter_folder() { return test_data("lora"); }

// The tensors of a safetensors file by name.
class TensorsOf {
 public:
  explicit TensorsOf(const std::string& path) : file_(path) {}

  template <typename T>
  std::vector<T> get(const std::string& name) const {
    const StoredTensor& stored = file_.tensors().at(name);
    std::vector<T> values(static_cast<size_t>(stored.shape.count()));
    file_.read(stored, 0, values.size() * sizeof(T), values.data());
    return values;
  }
  std::vector<double> values(const std::string& name) const { return get<double>(name); }
  const std::map<std::string, StoredTensor>& tensors() const { return file_.tensors(); }

 private:
  SafetensorsFile file_;
};

struct LoraMesh {
  const char* name;
  MeshOptions degrees = {.dp_shard = 1};
  bool sequence_parallel = false;
  Strategy strategy = Strategy::full_shard;
  RecomputeKind recompute = RecomputeKind::none;
  int chunks = 1;
  const char* schedule = "1f1b";

  int ranks() const { return degrees.pp * degrees.dp_replicate * degrees.dp_shard * degrees.cp * degrees.tp; }
  ParallelOptions options(DType master) const {
    ParallelOptions options = parallel(strategy, master);
    options.tensor.family.sequence_parallel = sequence_parallel;
    options.tensor.overlap_chunks = chunks;
    options.recompute.kind = recompute;
    options.pipeline.schedule = schedule;
    return options;
  }
  StepOptions step() const {
    StepOptions options;
    options.microbatches = degrees.pp;
    return options;
  }
};
inline std::ostream& operator<<(std::ostream& out, const LoraMesh& mesh) { return out << mesh.name; }

inline ModulePtr adapted(const LoraOptions& options) {
  const ModulePtr module = make_decoder(decoder_options_of_folder(base_folder()));
  apply_lora(module, options);
  return module;
}

inline std::unique_ptr<Model> adapted_model(Gang& root, const LoraMesh& mesh, const LoraOptions& options,
                                            DType master = DType::f64) {
  auto model =
      make_model(adapted(options), create_gangs(root.shared_from_this(), mesh.degrees), mesh.options(master));
  load_model(*model, base_folder());
  return model;
}

// With the values of the reference adapters.
inline std::unique_ptr<Model> reference_model(Gang& root, const LoraMesh& mesh, DType master = DType::f64) {
  auto model = adapted_model(root, mesh, lora_options_of_folder(adapter_folder()), master);
  load_lora(*model, adapter_folder());
  return model;
}

inline Tensor reference_tokens(Model& model, const TensorsOf& reference) {
  const std::vector<int64_t> ids = reference.get<int64_t>("tokens");
  return tensor_of(model, DType::i64, reference.tensors().at("tokens").shape, ids.data());
}

inline std::vector<double> logits_of(Model& model, const TensorsOf& reference) {
  Context ctx = model.run().context(model.device().stream());
  const StackScope scope(model.temporaries());
  const Tensor tokens = reference_tokens(model, reference);
  const Tensor logits = model.run().forward(ctx, {&tokens, 1}, nullptr).at(0);
  const HostMemory host(logits);
  std::vector<double> out(static_cast<size_t>(logits.count()));
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = logits.dtype() == DType::f64 ? host.data<double>()[i] : host.data<float>()[i];
  model.run().reshard();
  return out;
}

// The rows of the reference's batch that belong to this data-parallel rank.
inline Batch reference_batch(Model& model, const TensorsOf& reference) {
  int index = 0, count = 1;
  model.gangs().data_shard(&index, &count);
  const Shape& whole = reference.tensors().at("tokens").shape;
  const int64_t rows = whole[0] / count;
  const Shape own{rows, whole[1]};
  const auto part = [&](const char* name) {
    const std::vector<int64_t> all = reference.get<int64_t>(name);
    return tensor_of(model, DType::i64, own, all.data() + index * rows * whole[1]);
  };
  Batch batch;
  batch.inputs = {part("tokens")};
  batch.targets = {part("labels_shifted")};
  return batch;
}

template <typename Call>
void expect_refused(Code code, Call&& call, std::initializer_list<const char*> parts) {
  const Error error = error_of(call);
  EXPECT_STREQ(name(error.code()), name(code)) << error.message();
  for (const char* const part : parts)
    EXPECT_NE(error.message().find(part), std::string::npos) << error.message();
}

inline std::string peft_name(const std::string& name) { return "base_model.model." + name; }

}  // namespace gangway::test

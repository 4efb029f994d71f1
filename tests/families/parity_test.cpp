// Each model family against what transformers computes of a small model of it in f64 (tests/data/families):
// logits, loss, every gradient and five AdamW steps, on one rank and over each axis of the mesh; and its
// config.json read and written.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include <nlohmann/json.hpp>

#include "checkpoint/config_json.h"
#include "checkpoint/model_io.h"
#include "checkpoint/safetensors.h"
#include "data/data_path.h"
#include "families/family.h"
#include "train/train_testing.h"

namespace gangway::test {
namespace {

// A family is one row.
const char* const kFamilies[] = {
    "llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3", "olmo2",
};

std::string folder_of(const std::string& family) { return test_data("families/" + family); }

// The tensors of reference.safetensors by name.
class FamilyReference {
 public:
  explicit FamilyReference(const std::string& family) : file_(folder_of(family) + "/reference.safetensors") {}

  template <typename T>
  std::vector<T> get(const std::string& name) const {
    const StoredTensor& stored = file_.tensors().at(name);
    std::vector<T> values(static_cast<size_t>(stored.shape.count()));
    file_.read(stored, 0, values.size() * sizeof(T), values.data());
    return values;
  }
  std::vector<double> values(const std::string& name) const { return get<double>(name); }
  const Shape& shape(const std::string& name) const { return file_.tensors().at(name).shape; }
  std::vector<std::string> names(const std::string& prefix) const {
    std::vector<std::string> found;
    for (const auto& [name, stored] : file_.tensors())
      if (name.starts_with(prefix)) found.push_back(name.substr(prefix.size()));
    return found;
  }

 private:
  SafetensorsFile file_;
};

// How far, relative and by norms, a run may be from the reference.
struct Limits {
  double logits, loss, gradient, losses, parameters;
};
constexpr Limits kLimitsF64{1e-10, 1e-10, 1e-10, 1e-10, 1e-10};
constexpr Limits kLimitsF32{1e-5, 1e-6, 3e-5, 3e-5, 1e-4};

struct FamilyMesh {
  const char* name;
  MeshOptions degrees;
  bool sequence_parallel = false;
  DType dtype = DType::f64;

  const Limits& limits() const { return dtype == DType::f64 ? kLimitsF64 : kLimitsF32; }

  int ranks() const { return degrees.pp * degrees.dp_replicate * degrees.dp_shard * degrees.cp * degrees.tp; }
  // The vocabulary of these models is a prime, so embedding and head stay whole.
  std::string rows(const DecoderOptions& decoder) const {
    if (degrees.tp == 1) return "";
    if (!sequence_parallel) return "model.embed_tokens -> replicate\nlm_head -> replicate\n";
    return text("model.embed_tokens -> prepare_output(Replicate, Shard(1))\nmodel.layers.",
                decoder.layers - 1,
                " -> prepare_output(Shard(1), Replicate)\nmodel.norm -> replicate\nlm_head -> replicate\n");
  }
};
std::ostream& operator<<(std::ostream& out, const FamilyMesh& mesh) { return out << mesh.name; }

const FamilyMesh kMeshes[] = {
    {"one rank", {.dp_shard = 1}},
    {"one rank in f32", {.dp_shard = 1}, false, DType::f32},
    {"tp 2", {.dp_shard = 1, .tp = 2}},
    {"tp 2 with sequences", {.dp_shard = 1, .tp = 2}, true},
    {"cp 2", {.dp_shard = 1, .cp = 2}},
    {"pp 2", {.pp = 2, .dp_shard = 1}},
    {"dp_shard 2", {.dp_shard = 2}},
    {"pp 2 x cp 2 x tp 2 with sequences", {.pp = 2, .dp_shard = 1, .cp = 2, .tp = 2}, true},
    {"dp_shard 2 x tp 2", {.dp_shard = 2, .tp = 2}},
    {"pp 2 x dp_shard 2 x tp 2", {.pp = 2, .dp_shard = 2, .tp = 2}},
};

std::unique_ptr<Model> loaded(Gang& root, const std::string& folder, const FamilyMesh& mesh) {
  ParallelOptions options;
  options.master_dtype = mesh.dtype;
  options.tensor.family.sequence_parallel = mesh.sequence_parallel;
  const DecoderOptions decoder = decoder_options_of_folder(folder);
  options.tensor.rows = plan_from_text(mesh.rows(decoder));
  auto model =
      make_model(make_decoder(decoder), create_gangs(root.shared_from_this(), mesh.degrees), options);
  load_model(*model, folder);
  return model;
}

std::vector<double> logits_of(Model& model, const FamilyReference& reference) {
  Context ctx = model.run().context(model.device().stream());
  const StackScope scope(model.temporaries());
  const std::vector<int64_t> ids = reference.get<int64_t>("tokens");
  const Tensor tokens = tensor_of(model, DType::i64, reference.shape("tokens"), ids.data());
  const Tensor logits = model.run().forward(ctx, {&tokens, 1}, nullptr).at(0);
  const HostMemory host(logits);
  std::vector<double> values;
  for (int64_t i = 0; i < logits.count(); ++i)
    values.push_back(logits.dtype() == DType::f64 ? host.data<double>()[i] : host.data<float>()[i]);
  model.run().reshard();
  return values;
}

Batch batch_of(Model& model, const FamilyReference& reference) {
  int index = 0, count = 1;
  model.gangs().data_shard(&index, &count);
  const Shape& whole = reference.shape("tokens");
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

StepOptions step_of(const FamilyMesh& mesh) {
  StepOptions options;
  options.microbatches = mesh.degrees.pp / mesh.degrees.dp_shard;  // of the two rows
  return options;
}

class FamilyParity : public testing::TestWithParam<std::tuple<const char*, FamilyMesh>> {
 protected:
  const std::string family = std::get<0>(GetParam());
  const FamilyMesh mesh = std::get<1>(GetParam());
  const std::string folder = folder_of(family);
  const FamilyReference reference{family};
  const Limits limits = mesh.limits();
};

// With cp and pp a rank has a part of the logits, or none.
TEST_P(FamilyParity, LogitsEqualTheReference) {
  if (mesh.degrees.cp > 1 || mesh.degrees.pp > 1) return;
  run_ranks(mesh.ranks(), [&](Gang& root) {
    const auto model = loaded(root, folder, mesh);
    EXPECT_LT(distance(logits_of(*model, reference), reference.values("logits")), limits.logits);
  });
}

// A step of plain SGD moves each parameter by its gradient times the rate, whatever the mesh. The rate is
// large, so that the parameter's own digits do not hide those of the gradient in f32.
TEST_P(FamilyParity, LossAndEveryGradientEqualTheReference) {
  run_ranks(mesh.ranks(), [&](Gang& root) {
    const auto model = loaded(root, folder, mesh);
    std::map<std::string, std::vector<double>> gradients;
    for (const NamedParameter& p : model->inspect().parameters())
      gradients[p.name] = gathered(*model, *p.parameter);
    OptimizerOptions sgd;
    sgd.lr = 65536;
    const auto optimizer = make_optimizer("sgd", model->inspect().parameters(), sgd, model->ops());
    const StepResult result = train_step(*model, optimizer.get(), batch_of(*model, reference), step_of(mesh),
                                         model->device().stream());
    EXPECT_NEAR(result.loss / reference.values("loss")[0], 1, limits.loss);
    const std::vector<std::string> names = reference.names("grad.");
    EXPECT_EQ(names.size(), model->inspect().parameters().size());
    for (const NamedParameter& p : model->inspect().parameters()) {
      std::vector<double>& gradient = gradients.at(p.name);
      const std::vector<double> after = gathered(*model, *p.parameter);
      for (size_t i = 0; i < gradient.size(); ++i) gradient[i] = (gradient[i] - after[i]) / sgd.lr;
      EXPECT_LT(distance(gradient, reference.values("grad." + p.name)), limits.gradient) << p.name;
    }
  });
}

TEST_P(FamilyParity, FiveAdamWStepsEqualTheReference) {
  run_ranks(mesh.ranks(), [&](Gang& root) {
    const auto model = loaded(root, folder, mesh);
    OptimizerOptions adamw;
    adamw.lr = 1e-2;
    adamw.hyperparameters = {{"beta1", 0.9}, {"beta2", 0.95}, {"eps", 1e-8}};
    adamw.weight_decay = 0.1;
    adamw.rules = {{"**", 1, 0.1}};
    const auto optimizer = make_optimizer("adamw", model->inspect().parameters(), adamw, model->ops());
    const std::vector<double> losses = reference.values("adamw.losses");
    Stream& stream = model->device().stream();
    const Batch batch = batch_of(*model, reference);
    for (size_t step = 0; step < 5; ++step)
      EXPECT_NEAR(train_step(*model, optimizer.get(), batch, step_of(mesh), stream).loss / losses.at(step), 1,
                  limits.losses)
          << "step " << step;
    EXPECT_NEAR(eval_step(*model, batch, step_of(mesh), stream).loss / losses.at(5), 1, limits.losses);
    for (const std::string& name : reference.names("final."))
      EXPECT_LT(distance(gathered(*model, *model->inspect().parameter(name).parameter),
                         reference.values("final." + name)),
                limits.parameters)
          << name;
  });
}

INSTANTIATE_TEST_SUITE_P(, FamilyParity,
                         testing::Combine(testing::ValuesIn(kFamilies), testing::ValuesIn(kMeshes)),
                         [](const auto& row) {
                           std::string name = text(std::get<0>(row.param), "_", std::get<1>(row.param).name);
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return !std::isalnum(c); }, '_');
                           return name;
                         });

// --- folders

class FamilyFolder : public testing::TestWithParam<const char*> {};

TEST_P(FamilyFolder, IsWrittenAndReadAgainWithEqualLogitsAndAnEqualConfig) {
  const TemporaryFolder first, second;
  const FamilyReference reference(GetParam());
  run_ranks(1, [&](Gang& root) {
    const auto model = loaded(root, folder_of(GetParam()), kMeshes[0]);
    save_model(*model, first.path(), {});
    const auto again = loaded(root, first.path(), kMeshes[0]);
    EXPECT_EQ(logits_of(*again, reference), logits_of(*model, reference));
    save_model(*again, second.path(), {});
  });
  EXPECT_EQ(read_all(first.path() + "/config.json"), read_all(second.path() + "/config.json"));
}

INSTANTIATE_TEST_SUITE_P(, FamilyFolder, testing::ValuesIn(kFamilies),
                         [](const auto& row) { return std::string(row.param); });

// --- config.json

nlohmann::json json_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return nlohmann::json::parse(file);
}

class FamilyConfig : public testing::TestWithParam<const char*> {};

TEST_P(FamilyConfig, IsWrittenAsItWasRead) {
  const std::string path = folder_of(GetParam()) + "/config_legacy.json";
  const nlohmann::json given = json_of(path);
  const DecoderOptions options = parse_config_json(given.dump(), path);
  const nlohmann::json written = nlohmann::json::parse(config_json(options, DType::f32, given.dump()));
  const auto says = [&](const nlohmann::json& json, const std::string& key) {
    return json.contains(key) ? json.at(key) : nlohmann::json();
  };
  for (const nlohmann::json* json : {&given, &written})
    for (const auto& [key, value] : json->items()) EXPECT_EQ(says(written, key), says(given, key)) << key;
  EXPECT_EQ(written.at("architectures"), given.at("architectures"));
  EXPECT_EQ(written.at("torch_dtype"), given.at("torch_dtype"));
}

TEST_P(FamilyConfig, IsTheSameInTheFormOfTransformers5) {
  const std::string folder = folder_of(GetParam());
  const auto again = [](const std::string& path) {
    return config_json(parse_config_json(json_of(path).dump(), path), DType::f32);
  };
  EXPECT_EQ(again(folder + "/config.json"), again(folder + "/config_legacy.json"));
}

INSTANTIATE_TEST_SUITE_P(, FamilyConfig, testing::ValuesIn(kFamilies),
                         [](const auto& row) { return std::string(row.param); });

}  // namespace
}  // namespace gangway::test

// Each model family against what transformers computes of a small model of it in f64 (tests/data/families):
// logits, loss, every gradient and five AdamW steps, on one rank and over each axis of the mesh; and its
// config.json read and written. The vocabularies of these models are primes, which no tp divides.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include <nlohmann/json.hpp>

#include "checkpoint/config_json.h"
#include "checkpoint/model_io.h"
#include "checkpoint/run/checkpoints.h"
#include "checkpoint/safetensors.h"
#include "data/data_path.h"
#include "families/family.h"
#include "families/family_values.h"
#include "train/train_testing.h"

namespace gangway::test {
namespace {

// A family is one row.
const char* const kFamilies[] = {
    "llama",  "mistral", "qwen2", "qwen3", "gemma",         "gemma2",
    "gemma3", "olmo2",   "gpt2",  "phi3",  "phi3_longrope",
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
  ContextMethod context = ContextMethod::ring;
  RecomputeKind recompute = RecomputeKind::none;

  const Limits& limits() const { return dtype == DType::f64 ? kLimitsF64 : kLimitsF32; }

  int ranks() const { return degrees.pp * degrees.dp_replicate * degrees.dp_shard * degrees.cp * degrees.tp; }
};
std::ostream& operator<<(std::ostream& out, const FamilyMesh& mesh) { return out << mesh.name; }

const FamilyMesh kMeshes[] = {
    {"one rank", {.dp_shard = 1}},
    {"one rank in f32", {.dp_shard = 1}, false, DType::f32},
    {"tp 2", {.dp_shard = 1, .tp = 2}},
    {"tp 2 with sequences", {.dp_shard = 1, .tp = 2}, true},
    {"tp 2 with sequences and selective recomputation",
     {.dp_shard = 1, .tp = 2},
     true,
     DType::f64,
     ContextMethod::ring,
     RecomputeKind::selective},
    {"cp 2", {.dp_shard = 1, .cp = 2}},
    {"cp 2 all_gather", {.dp_shard = 1, .cp = 2}, false, DType::f64, ContextMethod::all_gather},
    {"cp 2 all_to_all", {.dp_shard = 1, .cp = 2}, false, DType::f64, ContextMethod::all_to_all},
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
  options.context = mesh.context;
  options.recompute.kind = mesh.recompute;
  auto model = make_model(make_decoder(decoder_options_of_folder(folder)),
                          create_gangs(root.shared_from_this(), mesh.degrees), options);
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

// Returns the values of a parameter in the reference, which has the names and shapes of the family's files.
std::vector<double> values_of(Model& model, const NamedParameter& p, const FamilyReference& reference,
                              const std::string& prefix) {
  const FilePlace place = places_of(model).of(p.name);
  EXPECT_EQ(reference.shape(prefix + place.name), place.shape) << p.name;
  return part_of(reference.values(prefix + place.name), place, p.parameter->shape);
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
  options.microbatches = std::max(1, mesh.degrees.pp / mesh.degrees.dp_shard);  // of the two rows
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
    const FilePlaces places = places_of(*model);
    std::set<std::string> in_files;
    for (const NamedParameter& p : model->inspect().parameters()) in_files.insert(places.of(p.name).name);
    EXPECT_EQ(reference.names("grad.").size(), in_files.size());
    for (const NamedParameter& p : model->inspect().parameters()) {
      std::vector<double>& gradient = gradients.at(p.name);
      const std::vector<double> after = gathered(*model, *p.parameter);
      for (size_t i = 0; i < gradient.size(); ++i) gradient[i] = (gradient[i] - after[i]) / sgd.lr;
      if (is_noise(family, p.name)) continue;
      EXPECT_LT(distance(gradient, values_of(*model, p, reference, "grad.")), limits.gradient) << p.name;
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
    const FilePlaces places = places_of(*model);
    const std::vector<std::string> finals = reference.names("final.");
    for (const NamedParameter& p : model->inspect().parameters()) {
      const bool is_given = std::count(finals.begin(), finals.end(), places.of(p.name).name) != 0;
      if (!is_given || is_noise(family, p.name)) continue;
      EXPECT_LT(distance(gathered(*model, *p.parameter), values_of(*model, p, reference, "final.")),
                limits.parameters)
          << p.name;
    }
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

void expect_tensors_of(const std::string& family, const std::string& folder, const std::string& what) {
  const SafetensorsFile given(folder_of(family) + "/model.safetensors");
  const SafetensorsFile written(folder + "/model.safetensors");
  EXPECT_EQ(written.tensors().size(), given.tensors().size());
  for (const auto& [name, stored] : given.tensors()) {
    ASSERT_EQ(written.tensors().count(name), 1u) << name;
    const StoredTensor& again = written.tensors().at(name);
    ASSERT_EQ(again.shape, stored.shape) << name;
    std::vector<char> a(stored.last - stored.first), b(again.last - again.first);
    given.read(stored, 0, a.size(), a.data());
    written.read(again, 0, b.size(), b.data());
    EXPECT_EQ(a, b) << family << ": " << name << " of " << what;
  }
}

const FamilyMesh kSharded{"dp_shard 2 x tp 2", {.dp_shard = 2, .tp = 2}};
const FamilyMesh kPipelined{"pp 2 x dp_shard 2", {.pp = 2, .dp_shard = 2}};

// Each rank writes its own rows of tensors that are fused or transposed.
TEST(FamilyFiles, HaveTheTensorsThatTheyWereReadFromWhicheverRanksWriteThem) {
  for (const char* family : {"gpt2", "phi3"})
    for (const FamilyMesh& mesh : {kMeshes[0], kSharded, kPipelined}) {
      const TemporaryFolder folder;
      run_ranks(mesh.ranks(), [&](Gang& root) {
        SaveOptions options;
        options.dtype = DType::f32;
        save_model(*loaded(root, folder_of(family), mesh), folder.path(), options);
      });
      expect_tensors_of(family, folder.path(), mesh.name);
    }
}

// Copies in memory, and writes without them, take the order of the files.
TEST(FamilyFiles, OfARunAreAFolderOfHuggingFaceAndGoToAnotherMesh) {
  for (const char* family : {"gpt2", "phi3"})
    for (const bool synchronous : {false, true}) {
      const TemporaryFolder folder;
      CheckpointsOptions options;
      options.folder = folder.path();
      options.synchronous = synchronous;
      options.model_dtype = DType::f32;
      options.timeout_ms = 60'000;
      run_ranks(kSharded.ranks(), [&](Gang& root) {
        const auto model = loaded(root, folder_of(family), kSharded);
        Checkpoints checkpoints(model->fsdp().gangs(), options);
        CheckpointState state;
        state.step = 1;
        checkpoints.save({{"", model.get(), nullptr}}, state);
        checkpoints.wait();
      });
      for (const std::string& name : folder.names())
        if (name.starts_with("step-"))
          expect_tensors_of(family, folder.path() + "/" + name, synchronous ? "a write" : "a copy");
      run_ranks(1, [&](Gang& root) {
        const auto wanted = loaded(root, folder_of(family), kMeshes[0]);
        ParallelOptions parallel;
        parallel.master_dtype = DType::f64;
        auto model = make_model(make_decoder(decoder_options_of_folder(folder_of(family))),
                                create_gangs(root.shared_from_this(), {.dp_shard = 1}), parallel);
        Checkpoints checkpoints(model->fsdp().gangs(), options);
        EXPECT_TRUE(checkpoints.restore({{"", model.get(), nullptr}}, {}).has_value());
        for (const NamedParameter& p : wanted->inspect().parameters())
          EXPECT_EQ(gathered(*model, *model->inspect().parameter(p.name).parameter),
                    gathered(*wanted, *p.parameter))
              << p.name;
      });
    }
}

INSTANTIATE_TEST_SUITE_P(, FamilyFolder, testing::ValuesIn(kFamilies),
                         [](const auto& row) { return std::string(row.param); });

// --- config.json

nlohmann::json json_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return nlohmann::json::parse(file);
}

class FamilyConfig : public testing::TestWithParam<const char*> {};

// The file in the keys of transformers 4. gpt2 has none of those that changed.
std::string legacy_config_of(const std::string& family) {
  const std::string path = folder_of(family) + "/config_legacy.json";
  return std::filesystem::exists(path) ? path : folder_of(family) + "/config.json";
}

TEST_P(FamilyConfig, IsWrittenAsItWasRead) {
  const std::string path = legacy_config_of(GetParam());
  const nlohmann::json given = json_of(path);
  const DecoderOptions options = parse_config_json(given.dump(), path);
  const nlohmann::json written = nlohmann::json::parse(config_json(options, DType::f32, given.dump()));
  const auto says = [&](const nlohmann::json& json, const std::string& key) {
    return json.contains(key) ? json.at(key) : nlohmann::json();
  };
  for (const nlohmann::json* json : {&given, &written})
    for (const auto& [key, value] : json->items()) EXPECT_EQ(says(written, key), says(given, key)) << key;
  EXPECT_EQ(written.at("architectures"), given.at("architectures"));
  const char* const dtype = given.contains("torch_dtype") ? "torch_dtype" : "dtype";
  EXPECT_EQ(written.at(dtype), given.at(dtype));
}

TEST_P(FamilyConfig, IsTheSameInTheFormOfTransformers5) {
  const std::string folder = folder_of(GetParam());
  const auto again = [](const std::string& path) {
    return config_json(parse_config_json(json_of(path).dump(), path), DType::f32);
  };
  EXPECT_EQ(again(folder + "/config.json"), again(legacy_config_of(GetParam())));
}

INSTANTIATE_TEST_SUITE_P(, FamilyConfig, testing::ValuesIn(kFamilies),
                         [](const auto& row) { return std::string(row.param); });

}  // namespace
}  // namespace gangway::test

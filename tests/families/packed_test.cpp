// Rows that hold several documents, against the documents one by one: the values of transformers in f64
// (tests/data/families/packed).
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "checkpoint/config_json.h"
#include "checkpoint/model_files.h"
#include "checkpoint/safetensors.h"
#include "data/data_path.h"
#include "families/family_values.h"
#include "train/train_testing.h"

namespace gangway::test {
namespace {

struct PackedModel {
  const char *name, *config, *values;
};
std::ostream& operator<<(std::ostream& out, const PackedModel& model) { return out << model.name; }

// The window of the second one is shorter than some documents and longer than others.
const PackedModel kModels[] = {
    {"llama", "families/llama/config.json", "families/llama/model.safetensors"},
    {"window", "families/packed/window.config.json", "families/mistral/model.safetensors"},
    {"gpt2", "families/gpt2/config.json", "families/gpt2/model.safetensors"},
};

struct PackedMesh {
  const char* name;
  MeshOptions degrees;
  ContextMethod context = ContextMethod::ring;
  RecomputeKind recompute = RecomputeKind::none;
  int ranks() const { return degrees.pp * degrees.dp_replicate * degrees.dp_shard * degrees.cp * degrees.tp; }
};
std::ostream& operator<<(std::ostream& out, const PackedMesh& mesh) { return out << mesh.name; }

// A data rank without rows takes part, too.
const PackedMesh kMeshes[] = {
    {"one rank", {.dp_shard = 1}},
    {"recompute", {.dp_shard = 1}, ContextMethod::ring, RecomputeKind::full},
    {"cp 2 ring", {.dp_shard = 1, .cp = 2}},
    {"cp 2 all_gather", {.dp_shard = 1, .cp = 2}, ContextMethod::all_gather},
    {"cp 2 all_to_all", {.dp_shard = 1, .cp = 2}, ContextMethod::all_to_all},
    {"cp 4 ring", {.dp_shard = 1, .cp = 4}, ContextMethod::ring, RecomputeKind::selective},
    {"cp 4 all_gather", {.dp_shard = 1, .cp = 4}, ContextMethod::all_gather},
    {"cp 4 all_to_all", {.dp_shard = 1, .cp = 4}, ContextMethod::all_to_all},
    {"tp 2", {.dp_shard = 1, .tp = 2}},
    {"pp 2", {.pp = 2, .dp_shard = 1}},
    {"pp 2 x tp 2 x dp 2", {.pp = 2, .dp_shard = 2, .tp = 2}},
};

class Packed : public testing::TestWithParam<std::tuple<PackedModel, PackedMesh>> {
 protected:
  const PackedModel packed = std::get<0>(GetParam());
  const PackedMesh mesh = std::get<1>(GetParam());
  const SafetensorsFile file{test_data("families/packed/" + std::string(packed.name) + ".safetensors")};

  template <typename T>
  std::vector<T> get(const std::string& name) const {
    const StoredTensor& stored = file.tensors().at(name);
    std::vector<T> values(static_cast<size_t>(stored.shape.count()));
    file.read(stored, 0, values.size() * sizeof(T), values.data());
    return values;
  }

  std::unique_ptr<Model> loaded(Gang& root) const {
    const std::string path = test_data(packed.config);
    std::ifstream config(path);
    const std::string text{std::istreambuf_iterator<char>(config), {}};
    ParallelOptions options;
    options.master_dtype = DType::f64;
    options.context = mesh.context;
    options.recompute.kind = mesh.recompute;
    auto model = make_model(make_decoder(parse_config_json(text, path)),
                            create_gangs(root.shared_from_this(), mesh.degrees), options);
    load_model(*model, test_data(packed.values));
    return model;
  }

  // The whole row on the first data rank, no row on others.
  Batch batch(Model& model) const {
    int index = 0, count = 1;
    model.gangs().data_shard(&index, &count);
    const Shape shape{index == 0 ? 1 : 0, 24};
    const std::vector<int64_t> tokens = get<int64_t>("tokens");
    const std::vector<int64_t> ids = get<int64_t>("document_ids");
    Batch made;
    made.inputs = {tensor_of(model, DType::i64, shape, tokens.data())};
    made.documents = Tensor::allocate(host->allocator(), DType::i64, shape);
    std::copy_n(ids.begin(), shape.count(), made.documents.data<int64_t>());
    return made;
  }

  const std::shared_ptr<Device> host = make_device("cpu");
};

constexpr double kTolerance = 1e-12;

// A step of plain SGD with rate 1 moves each parameter by its gradient. The library makes the labels.
TEST_P(Packed, LossAndEveryGradientEqualThoseOfTheDocumentsOneByOne) {
  run_ranks(mesh.ranks(), [&](Gang& root) {
    const auto model = loaded(root);
    std::map<std::string, std::vector<double>> gradients;
    for (const NamedParameter& p : model->inspect().parameters())
      gradients[p.name] = gathered(*model, *p.parameter);
    OptimizerOptions sgd;
    sgd.lr = 1;
    const auto optimizer = make_optimizer("sgd", model->inspect().parameters(), sgd, model->ops());
    StepOptions step;
    step.microbatches = mesh.degrees.pp;
    const StepResult result =
        train_step(*model, optimizer.get(), batch(*model), step, model->device().stream());
    EXPECT_EQ(result.weight, 20);
    EXPECT_NEAR(result.loss / get<double>("loss")[0], 1, kTolerance);
    for (const NamedParameter& p : model->inspect().parameters()) {
      std::vector<double>& gradient = gradients.at(p.name);
      const std::vector<double> after = gathered(*model, *p.parameter);
      for (size_t i = 0; i < gradient.size(); ++i) gradient[i] -= after[i];
      if (is_noise(packed.name, p.name)) continue;
      const FilePlace place = places_of(*model).of(p.name);
      EXPECT_LT(distance(gradient, part_of(get<double>("grad." + place.name), place, p.parameter->shape)),
                kTolerance)
          << p.name;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(, Packed, testing::Combine(testing::ValuesIn(kModels), testing::ValuesIn(kMeshes)),
                         [](const auto& row) {
                           std::string name =
                               text(std::get<0>(row.param).name, "_", std::get<1>(row.param).name);
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return !std::isalnum(c); }, '_');
                           return name;
                         });

}  // namespace
}  // namespace gangway::test

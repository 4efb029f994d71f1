// Ten steps of each optimizer with given gradients, beside what PyTorch or the published formula makes of
// them.
#include <nlohmann/json.hpp>

#include "optim/optim_testing.h"
#include "support/tensor_file.h"

namespace gangway {
namespace {

using test::Cpu;
using test::TensorFile;

// Every parameter decays in the files, those of one dim too.
OptimizerOptions options_of(const TensorFile& file) {
  OptimizerOptions options;
  const nlohmann::json settings = nlohmann::json::parse(file.settings);
  options.lr = settings.at("lr");
  options.weight_decay = settings.at("weight_decay");
  options.rules = {{"**", 1, options.weight_decay}};
  for (const auto& [name, value] : settings.items()) {
    if (name == "lr" || name == "weight_decay") continue;
    if (value.is_boolean())
      options.hyperparameters[name] = value.get<bool>();
    else
      options.hyperparameters[name] = value.get<double>();
  }
  return options;
}

void expect_steps(const char* kind, const std::string& name, DType dtype, double tolerance) {
  Cpu cpu;
  const TensorFile inputs("optimizers/inputs"), file("optimizers/" + name);
  std::vector<NamedParameter> parameters;
  for (const char* parameter : {"tall", "wide", "vector"}) {
    const TensorFile::Entry& init = inputs.at(std::string("init.") + parameter);
    Shape shape = init.dims.size() == 1 ? Shape{init.dims[0]} : Shape{init.dims[0], init.dims[1]};
    parameters.push_back(test::make_parameter(cpu, parameter, shape, dtype));
    for (size_t i = 0; i < init.values.size(); ++i)
      test::put(parameters.back().parameter->shard, static_cast<int64_t>(i), init.values[i]);
  }
  const auto optimizer = make_optimizer(kind, parameters, options_of(file), *cpu.ops);
  for (size_t step = 0; step < 10; ++step) {
    for (const NamedParameter& p : parameters) {
      const std::vector<double>& all = inputs.values("grad." + p.name);
      const size_t count = all.size() / 10;
      for (size_t i = 0; i < count; ++i)
        test::put(p.parameter->shard_grad->tensor, static_cast<int64_t>(i), all[step * count + i]);
      p.parameter->shard_grad->written = true;
    }
    optimizer->step(1, 1, cpu.stream);
    for (const NamedParameter& p : parameters) {
      const std::vector<double> got = test::values(p.parameter->shard), &want = file.values(p.name);
      for (size_t i = 0; i < got.size(); ++i)
        ASSERT_NEAR(got[i], want[step * got.size() + i], tolerance) << name << " " << p.name << " " << i;
    }
  }
}

struct Row {
  const char *kind, *file;
};
constexpr Row kRows[] = {
    {"adamw", "adamw"},
    {"lion", "lion"},
    {"sgd", "sgd_momentum"},
    {"sgd", "sgd_nesterov"},
};

TEST(OptimizerReference, TenStepsInF64) {
  for (const Row& row : kRows) expect_steps(row.kind, row.file, DType::f64, 1e-12);
}

TEST(OptimizerReference, TenStepsInF32) {
  for (const Row& row : kRows) expect_steps(row.kind, row.file, DType::f32, 4e-6);
}

TEST(OptimizerReference, EveryKindHasARow) {
  for (const OptimizerKind* const kind : optimizer_kinds())
    EXPECT_TRUE(std::any_of(std::begin(kRows), std::end(kRows), [&](const Row& row) {
      return std::string(row.kind) == kind->name;
    })) << kind->name;
}

}  // namespace
}  // namespace gangway

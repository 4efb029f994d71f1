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

// The parameters of a file, with their first values.
struct Trial {
  Trial(const TensorFile& inputs, const TensorFile& file, DType dtype) {
    for (const char* parameter : {"tall", "wide", "vector"}) {
      if (file.entries.count(parameter) == 0) continue;
      const TensorFile::Entry& init = inputs.at(std::string("init.") + parameter);
      Shape shape = init.dims.size() == 1 ? Shape{init.dims[0]} : Shape{init.dims[0], init.dims[1]};
      parameters.push_back(test::make_parameter(cpu, parameter, shape, dtype));
      for (size_t i = 0; i < init.values.size(); ++i)
        test::put(parameters.back().parameter->shard, static_cast<int64_t>(i), init.values[i]);
    }
  }
  void set_gradients(const TensorFile& inputs, size_t step) {
    for (const NamedParameter& p : parameters) {
      const std::vector<double>& all = inputs.values("grad." + p.name);
      const size_t count = all.size() / 10;
      for (size_t i = 0; i < count; ++i)
        test::put(p.parameter->shard_grad->tensor, static_cast<int64_t>(i), all[step * count + i]);
      p.parameter->shard_grad->written = true;
    }
  }

  Cpu cpu;
  std::vector<NamedParameter> parameters;
};

void expect_steps(const char* kind, const std::string& name, DType dtype, double tolerance) {
  const TensorFile inputs("optimizers/inputs"), file("optimizers/" + name);
  Trial trial(inputs, file, dtype);
  const auto optimizer = make_optimizer(kind, trial.parameters, options_of(file), *trial.cpu.ops);
  for (size_t step = 0; step < 10; ++step) {
    trial.set_gradients(inputs, step);
    optimizer->step(1, 1, trial.cpu.stream);
    for (const NamedParameter& p : trial.parameters) {
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
    {"adafactor", "adafactor"}, {"adamw", "adamw"},         {"lion", "lion"},        {"muon", "muon"},
    {"muon", "muon_plain"},     {"muon", "muon_match_rms"}, {"sgd", "sgd_momentum"}, {"sgd", "sgd_nesterov"},
};

TEST(OptimizerReference, TenStepsInF64) {
  for (const Row& row : kRows) expect_steps(row.kind, row.file, DType::f64, 1e-12);
}

TEST(OptimizerReference, TenStepsInF32) {
  for (const Row& row : kRows) expect_steps(row.kind, row.file, DType::f32, 4e-6);
}

// torch.optim.Muon iterates in bf16, which changes the change of a parameter by about one per cent.
TEST(OptimizerReference, MuonInBf16IsWithinTwoPercentOfTorchs) {
  for (const char* name : {"muon", "muon_plain", "muon_match_rms"}) {
    const TensorFile inputs("optimizers/inputs"), file(std::string("optimizers/") + name);
    Trial trial(inputs, file, DType::f32);
    OptimizerOptions options = options_of(file);
    options.hyperparameters["matrix_dtype"] = DType::bf16;
    const auto optimizer = make_optimizer("muon", trial.parameters, options, *trial.cpu.ops);
    for (size_t step = 0; step < 10; ++step) {
      trial.set_gradients(inputs, step);
      optimizer->step(1, 1, trial.cpu.stream);
    }
    for (const NamedParameter& p : trial.parameters) {
      const std::vector<double> got = test::values(p.parameter->shard),
                                &init = inputs.values("init." + p.name);
      const double* const want = file.values("torch." + p.name).data() + 9 * got.size();
      double difference = 0, change = 0;
      for (size_t i = 0; i < got.size(); ++i) {
        difference += (got[i] - want[i]) * (got[i] - want[i]);
        change += (want[i] - init[i]) * (want[i] - init[i]);
      }
      EXPECT_LT(std::sqrt(difference / change), 0.02) << name << " " << p.name;
    }
  }
}

// AdamW in 8 bits has the rounding of 256 values: tests/ops/adamw8bit_test.cpp compares each step.
TEST(OptimizerReference, EveryKindHasARow) {
  for (const OptimizerKind* const kind : optimizer_kinds()) {
    const std::string name = kind->name;
    EXPECT_TRUE(name == "adamw8bit" || std::any_of(std::begin(kRows), std::end(kRows),
                                                   [&](const Row& row) { return row.kind == name; }))
        << name;
  }
}

}  // namespace
}  // namespace gangway

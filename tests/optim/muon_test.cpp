// Which parameters Muon steps itself, and what it refuses. Its numbers: reference_test.cpp.
#include <limits>

#include "optim/newton_schulz.h"
#include "optim/optim_testing.h"

namespace gangway {
namespace {

using test::Cpu;
using test::error_of;
using test::make_parameter;
using test::set_gradient;

std::vector<std::string> names_of(const std::vector<Optimizer::Slot>& states) {
  std::vector<std::string> names;
  for (const Optimizer::Slot& slot : states) names.push_back(slot.name);
  return names;
}

const std::vector<std::string> kByMuon = {"momentum_buffer"}, kByAdamW = {"exp_avg", "exp_avg_sq"};

TEST(Muon, LeavesAllButMatricesAndWhatHasARowForEachIdToAdamW) {
  Cpu cpu;
  const NamedParameter matrix = make_parameter(cpu, "linear.weight", Shape{4, 3}),
                       vector = make_parameter(cpu, "norm.weight", Shape{4}),
                       cube = make_parameter(cpu, "experts.weight", Shape{2, 4, 3}),
                       table = make_parameter(cpu, "embed.weight", Shape{9, 4});
  table.parameter->rows_are_ids = true;
  const auto optimizer = make_optimizer("muon", {matrix, vector, cube, table}, {}, *cpu.ops);
  EXPECT_EQ(names_of(optimizer->state(0)), kByMuon);
  for (const size_t i : {1, 2, 3}) EXPECT_EQ(names_of(optimizer->state(i)), kByAdamW) << i;
}

TEST(Muon, ARuleSaysWhichParametersAdamWSteps) {
  Cpu cpu;
  const NamedParameter matrix = make_parameter(cpu, "a.weight", Shape{4, 3}),
                       table = make_parameter(cpu, "embed.weight", Shape{9, 4});
  table.parameter->rows_are_ids = true;
  OptimizerOptions options;
  options.rules = {{"a.*", 1, -1, false, 1}, {"embed.*", 1, -1, false, 0}};
  const auto optimizer = make_optimizer("muon", {matrix, table}, options, *cpu.ops);
  EXPECT_EQ(names_of(optimizer->state(0)), kByAdamW);
  EXPECT_EQ(names_of(optimizer->state(1)), kByMuon);
}

TEST(Muon, StepsTheOthersAsAdamWDoes) {
  Cpu cpu;
  const NamedParameter by_muon = make_parameter(cpu, "w", Shape{7}, DType::f64),
                       by_adamw = make_parameter(cpu, "w", Shape{7}, DType::f64);
  OptimizerOptions options;
  options.lr = 0.02;
  options.hyperparameters = {{"adamw_lr_scale", 0.5}, {"beta2", 0.95}};
  const auto muon = make_optimizer("muon", {by_muon}, options, *cpu.ops);
  options.lr = 0.01;
  options.hyperparameters = {{"beta2", 0.95}};
  const auto adamw = make_optimizer("adamw", {by_adamw}, options, *cpu.ops);
  for (int step = 0; step < 3; ++step)
    for (Optimizer* const optimizer : {muon.get(), adamw.get()}) {
      set_gradient(optimizer->parameters()[0], step);
      optimizer->step(0.5, 1, cpu.stream);
    }
  EXPECT_EQ(test::values(by_muon.parameter->shard), test::values(by_adamw.parameter->shard));
}

TEST(Muon, RefusesWithTheParameterAndTheRule) {
  Cpu cpu;
  const NamedParameter w = make_parameter(cpu, "w", Shape{2, 2}),
                       bias = make_parameter(cpu, "bias", Shape{3});
  OptimizerOptions options;
  options.rules = {{"**", 1, -1, false, 0}};
  EXPECT_EQ(error_of([&] {
              make_optimizer("muon", {w, bias}, options, *cpu.ops);
            }).message(),
            "muon: bias is [3], not a matrix, but a rule has adamw = 0; leave it at -1");
  options.rules = {{"w", 1, -1, false, 1}};
  EXPECT_EQ(
      error_of([&] { make_optimizer("adamw", {w}, options, *cpu.ops); }).message(),
      "adamw: rules[0] (\"w\").adamw = 1, but only muon steps some parameters by AdamW; leave it at -1");
  options.rules = {{"w", 1, -1, false, 2}};
  EXPECT_EQ(error_of([&] { make_optimizer("muon", {w}, options, *cpu.ops); }).message(),
            "muon: rules[0] (\"w\").adamw = 2 is not -1, 0 or 1");
}

TEST(Muon, AMatrixOfZerosStays) {
  Cpu cpu;
  const NamedParameter w = make_parameter(cpu, "w", Shape{3, 5}, DType::f64);
  OptimizerOptions options;
  options.weight_decay = 0;
  const std::vector<double> before = test::values(w.parameter->shard);
  make_optimizer("muon", {w}, options, *cpu.ops)->step(1, 1, cpu.stream);  // no gradient
  EXPECT_EQ(test::values(w.parameter->shard), before);
}

// The singular values of the result are near 1: each row's product with itself, and with others.
TEST(NewtonSchulz, MakesRowsAboutOrthonormal) {
  Cpu cpu;
  Stack temporaries(cpu.device->allocator());
  for (const Shape& shape : {Shape{1, 1}, Shape{1, 9}, Shape{6, 40}, Shape{40, 6}}) {
    const Tensor x = Tensor::allocate(cpu.device->allocator(), DType::f64, shape);
    test::fill_random(x, "x");
    orthogonalize(*cpu.ops, x, 5, 1e-7, temporaries, cpu.stream);
    const bool tall = shape[0] > shape[1];
    const int64_t side = tall ? shape[1] : shape[0], length = tall ? shape[0] : shape[1];
    for (int64_t a = 0; a < side; ++a)
      for (int64_t b = 0; b < side; ++b) {
        double product = 0;
        for (int64_t k = 0; k < length; ++k)
          product += tall ? test::get(x, k * side + a) * test::get(x, k * side + b)
                          : test::get(x, a * length + k) * test::get(x, b * length + k);
        // The polynomial leaves singular values between 0.7 and 1.2.
        EXPECT_NEAR(product, a == b ? 1 : 0, 0.55) << shape.text();
      }
  }
}

// Ranks have different numbers of threads on different meshes.
TEST(NewtonSchulz, HasTheSameBitsForEveryThreadCount) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16})
    for (const Shape& shape : {Shape{130, 300}, Shape{300, 130}}) {
      std::vector<std::vector<double>> found;
      for (const int threads : {1, 2, 3}) {
        const std::shared_ptr<Device> device = make_device("cpu", {.index = 0, .threads = threads});
        const std::unique_ptr<Ops> ops = make_ops(device);
        Stack temporaries(device->allocator());
        const Tensor x = Tensor::allocate(device->allocator(), dtype, shape);
        test::fill_random(x, "x");
        orthogonalize(*ops, x, 5, 1e-7, temporaries, device->stream());
        found.push_back(test::values(x));
      }
      EXPECT_EQ(found[1], found[0]) << name(dtype) << " " << shape.text();
      EXPECT_EQ(found[2], found[0]) << name(dtype) << " " << shape.text();
    }
}

TEST(NewtonSchulz, GivesTheTransposeForATransposedMatrix) {
  Cpu cpu;
  Stack temporaries(cpu.device->allocator());
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
    const Tensor wide = Tensor::allocate(cpu.device->allocator(), dtype, Shape{5, 21}),
                 tall = Tensor::allocate(cpu.device->allocator(), dtype, Shape{21, 5});
    test::fill_random(wide, "x");
    cpu.ops->cast(wide.transpose(0, 1), tall, cpu.stream);
    orthogonalize(*cpu.ops, wide, 5, 1e-7, temporaries, cpu.stream);
    orthogonalize(*cpu.ops, tall, 5, 1e-7, temporaries, cpu.stream);
    const double tolerance = dtype == DType::bf16 ? 0.05 : dtype == DType::f32 ? 1e-4 : 1e-12;
    for (int64_t r = 0; r < 5; ++r)
      for (int64_t c = 0; c < 21; ++c)
        EXPECT_NEAR(test::get(wide, r * 21 + c), test::get(tall, c * 5 + r), tolerance) << name(dtype);
  }
}

}  // namespace
}  // namespace gangway

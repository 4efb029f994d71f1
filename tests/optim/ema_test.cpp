// The averages of the parameters.
#include "optim/optim_testing.h"

namespace gangway {
namespace {

using test::Cpu;
using test::error_of;
using test::make_parameter;
using test::set_gradient;

OptimizerOptions with_ema(double decay) {
  OptimizerOptions options;
  options.lr = 0.05;
  options.ema_decay = decay;
  return options;
}

TEST(Ema, IsTheLastStateOfEveryKindAndFollowsTheValues) {
  for (const OptimizerKind* const kind : optimizer_kinds()) {
    Cpu cpu;
    const NamedParameter w = make_parameter(cpu, "w", Shape{5, 3}, DType::f64),
                         b = make_parameter(cpu, "b", Shape{4}, DType::f64);
    const auto optimizer = make_optimizer(kind->name, {w, b}, with_ema(0.75), *cpu.ops);
    for (size_t i : {0, 1}) {
      const Optimizer::Slot& ema = optimizer->state(i).back();
      EXPECT_EQ(ema.name, "ema");
      EXPECT_EQ(ema.shape, optimizer->parameters()[i].parameter->shape);
    }
    std::vector<double> want;
    for (int step = 0; step < 4; ++step) {
      set_gradient(w, step);
      set_gradient(b, step);
      optimizer->step(1, 1, cpu.stream);
      const std::vector<double> now = test::values(w.parameter->shard);
      if (step == 0) want = now;  // the first step copies
      for (size_t i = 0; i < now.size(); ++i) want[i] = 0.75 * want[i] + 0.25 * now[i];
    }
    const std::vector<double> got = test::values(optimizer->state(0).back().tensor);
    for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-14) << kind->name;
  }
}

TEST(Ema, ADecayWithWhichAnAverageInF32StandsStillIsRefusedWithTheNumbers) {
  Cpu cpu;
  const NamedParameter w = make_parameter(cpu, "w", Shape{2}),
                       wide = make_parameter(cpu, "w", Shape{2}, DType::f64);
  const std::string message =
      error_of([&] { make_optimizer("adamw", {w}, with_ema(1 - 0x1p-25), *cpu.ops); }).message();
  EXPECT_NE(message.find("adamw: ema_decay = "), std::string::npos) << message;
  EXPECT_NE(message.find("an average in f32 stands still"), std::string::npos) << message;
  make_optimizer("adamw", {w}, with_ema(1 - 0x1p-24), *cpu.ops);
  make_optimizer("adamw", {wide}, with_ema(1 - 0x1p-25), *cpu.ops);
}

TEST(Ema, SwapsWithTheValuesAndBackToTheSameBits) {
  Cpu cpu;
  const NamedParameter w = make_parameter(cpu, "w", Shape{5, 3}), frozen = make_parameter(cpu, "f", Shape{3});
  OptimizerOptions options = with_ema(0.9);
  options.rules = {{"f", 1, -1, true}};
  const auto optimizer = make_optimizer("adamw", {w, frozen}, options, *cpu.ops);
  EXPECT_TRUE(optimizer->state(1).empty());
  for (int step = 0; step < 2; ++step) {
    set_gradient(w, step);
    optimizer->step(1, 1, cpu.stream);
  }
  const std::vector<double> values = test::values(w.parameter->shard),
                            f = test::values(frozen.parameter->shard),
                            ema = test::values(optimizer->state(0).back().tensor);
  EXPECT_NE(values, ema);
  optimizer->swap_ema(cpu.stream);
  EXPECT_TRUE(optimizer->ema_swapped());
  EXPECT_EQ(test::values(w.parameter->shard), ema);
  EXPECT_EQ(test::values(optimizer->state(0).back().tensor), values);
  EXPECT_EQ(test::values(frozen.parameter->shard), f);
  optimizer->swap_ema(cpu.stream);
  EXPECT_FALSE(optimizer->ema_swapped());
  EXPECT_EQ(test::values(w.parameter->shard), values);
  EXPECT_EQ(test::values(optimizer->state(0).back().tensor), ema);
}

TEST(Ema, ADecayOutsideItsRangeIsRefused) {
  Cpu cpu;
  for (const double decay : {-0.1, 1.0, std::nan("")})
    EXPECT_EQ(error_of([&] {
                make_optimizer("adamw", {make_parameter(cpu, "w", Shape{2})}, with_ema(decay), *cpu.ops);
              }).message(),
              text("adamw: ema_decay = ", decay, " is outside [0, 1)"));
}

}  // namespace
}  // namespace gangway

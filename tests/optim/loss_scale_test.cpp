#include "optim/loss_scale.h"

#include <iterator>
#include <limits>

#include "optim/optim_testing.h"

namespace gangway {
namespace {

using test::Cpu;
using test::error_of;
using test::make_parameter;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

LossScale dynamic(double initial, int64_t interval) { return {"adamw", {0, initial, interval}, true}; }

TEST(LossScale, IsDynamicFrom65536WhereF16IsComputedAndNoneElsewhere) {
  const LossScale f16("adamw", {}, true), other("adamw", {}, false);
  EXPECT_TRUE(f16.dynamic());
  EXPECT_TRUE(f16.used());
  EXPECT_EQ(f16.value(), 65536);
  EXPECT_FALSE(other.dynamic());
  EXPECT_FALSE(other.used());
  EXPECT_EQ(other.value(), 1);
}

TEST(LossScale, AGivenLossScaleStaysWhateverStepsDo) {
  for (const bool f16 : {false, true}) {
    LossScale scale("sgd", {.fixed = 1000, .interval = 1}, f16);
    EXPECT_FALSE(scale.dynamic());
    EXPECT_TRUE(scale.used());
    scale.follow(false);
    scale.follow(true);
    EXPECT_EQ(scale.value(), 1000);
  }
  EXPECT_FALSE(LossScale("sgd", {.fixed = 1}, true).used());
}

// torch.amp.GradScaler(init_scale=8, growth_interval=3), by hand.
TEST(LossScale, FollowsTheRuleOfPyTorchsGradScaler) {
  LossScale scale = dynamic(8, 3);
  const struct {
    bool finite;
    double then;
  } steps[] = {{true, 8},  {true, 8}, {true, 16}, {true, 16}, {false, 8}, {true, 8}, {true, 8}, {false, 4},
               {false, 2}, {true, 2}, {true, 2},  {true, 4},  {true, 4},  {true, 4}, {true, 8}};
  for (size_t i = 0; i < std::size(steps); ++i) {
    scale.follow(steps[i].finite);
    EXPECT_EQ(scale.value(), steps[i].then) << i;
  }
}

TEST(LossScale, StaysBetween1And2ToThe24) {
  LossScale scale = dynamic(0x1p23, 1);
  for (int i = 0; i < 3; ++i) scale.follow(true);
  EXPECT_EQ(scale.value(), 0x1p24);
  for (int i = 0; i < 30; ++i) scale.follow(false);
  EXPECT_EQ(scale.value(), 1);
  LossScale odd = dynamic(3, 1);
  odd.follow(false);
  EXPECT_EQ(odd.value(), 1.5);
  odd.follow(false);
  EXPECT_EQ(odd.value(), 1);
}

TEST(LossScale, SettingTheLossScaleRestartsTheCountOfFiniteSteps) {
  LossScale scale = dynamic(8, 2);
  scale.follow(true);
  scale.set(64);
  scale.follow(true);
  EXPECT_EQ(scale.value(), 64);
  scale.follow(true);
  EXPECT_EQ(scale.value(), 128);
  LossScale none("sgd", {}, false);
  none.set(0.5);
  EXPECT_TRUE(none.used());
  EXPECT_FALSE(none.dynamic());
  EXPECT_EQ(none.value(), 0.5);
}

TEST(LossScale, ContinuesWithTheFiniteStepsThatAreRestored) {
  LossScaleOptions options;
  options.interval = 3;
  LossScale scale("adamw", options, /*computes_in_f16=*/true);
  scale.restore(1024, 2);
  EXPECT_EQ(scale.finite_steps(), 2);
  scale.follow(true);
  EXPECT_EQ(scale.value(), 2048);
  EXPECT_EQ(scale.finite_steps(), 0);
  EXPECT_EQ(error_of([&] { scale.restore(8, -1); }).message(), "adamw: finite steps = -1 is below 0");
  EXPECT_EQ(scale.value(), 2048);
}

TEST(LossScale, RefusesWithOptionAndValue) {
  Cpu cpu;
  const NamedParameter w = make_parameter(cpu, "w", Shape{2, 2});
  const struct {
    LossScaleOptions options;
    const char* words;
  } table[] = {
      {{.fixed = -1}, "loss_scale = -1 is outside [2^-126, 2^126]"},
      {{.fixed = 0x1p127}, "loss_scale = 1.70141e+38 is outside"},
      {{.fixed = 1e46}, "loss_scale = 1e+46"},
      {{.fixed = std::nan("")}, "loss_scale = nan"},
      {{.fixed = kInfinity}, "loss_scale = inf"},
      {{.fixed = 0x1p-1074}, "loss_scale = "},
      {{.fixed = 1e-40}, "loss_scale = 1e-40"},
      {{.initial = 0.5}, "initial_loss_scale = 0.5 is outside [1, 2^24]"},
      {{.initial = 0}, "initial_loss_scale = 0"},
      {{.initial = -2}, "initial_loss_scale = -2"},
      {{.initial = 0x1p25}, "initial_loss_scale = "},
      {{.initial = std::nan("")}, "initial_loss_scale = nan"},
      {{.initial = kInfinity}, "initial_loss_scale = inf"},
      {{.interval = 0}, "loss_scale_interval = 0 is below 1"},
      {{.interval = -3}, "loss_scale_interval = -3"},
  };
  for (const auto& row : table)
    for (const bool sgd : {false, true}) {
      OptimizerOptions options;
      options.loss_scale = row.options;
      const Error error = error_of([&] { make_optimizer(sgd ? "sgd" : "adamw", {w}, options, *cpu.ops); });
      EXPECT_EQ(error.code(), Code::invalid_argument) << row.words;
      EXPECT_NE(error.message().find(text(sgd ? "sgd: " : "adamw: ", row.words)), std::string::npos)
          << error.message();
    }
}

TEST(LossScale, OfAnotherRangeIsRefusedAndTheOldOneStays) {
  LossScale changing = dynamic(8, 2), fixed("sgd", {.fixed = 8}, false);
  for (const double value : {0.0, -1.0, std::nan(""), kInfinity, 0.5, 0x1p25}) {
    const Error error = error_of([&] { changing.set(value); });
    EXPECT_EQ(error.code(), Code::invalid_argument) << value;
    EXPECT_NE(error.message().find(text("adamw: loss scale = ", value, " is ")), std::string::npos)
        << error.message();
    EXPECT_EQ(changing.value(), 8);
  }
  for (const double value : {0.0, -1.0, std::nan(""), kInfinity})
    EXPECT_EQ(error_of([&] { fixed.set(value); }).code(), Code::invalid_argument) << value;
  fixed.set(0x1p25);
  EXPECT_EQ(fixed.value(), 0x1p25);
}

TEST(Optimizer, ScalesDynamicallyWhereAnyParameterIsComputedInF16) {
  Cpu cpu;
  const auto narrow = make_parameter(cpu, "a", Shape{2, 2}), wide = make_parameter(cpu, "b", Shape{2, 2});
  EXPECT_FALSE(make_optimizer("adamw", {narrow, wide}, {}, *cpu.ops)->loss_scale().used());
  wide.parameter->compute_dtype = DType::bf16;
  EXPECT_FALSE(make_optimizer("adamw", {narrow, wide}, {}, *cpu.ops)->loss_scale().used());
  narrow.parameter->compute_dtype = DType::f16;
  EXPECT_TRUE(make_optimizer("adamw", {narrow, wide}, {}, *cpu.ops)->loss_scale().dynamic());
  OptimizerOptions options;
  options.loss_scale.fixed = 1;
  EXPECT_FALSE(make_optimizer("sgd", {narrow, wide}, options, *cpu.ops)->loss_scale().used());
}

}  // namespace
}  // namespace gangway

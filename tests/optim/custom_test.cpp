// An optimizer of the caller's, and a schedule of the caller's.
#include "optim/custom.h"

#include <limits>

#include "optim/optim_testing.h"

namespace gangway {
namespace {

using test::Cpu;
using test::error_of;
using test::make_parameter;
using test::set_gradient;

// SGD with momentum, as the library's own.
class Momentum final : public CustomStepper {
 public:
  void step(const CustomStep& s, Stream&) override {
    for (int64_t i = 0; i < s.value.count(); ++i) {
      const double p = test::get(s.value, i), g = test::get(s.gradient, i) + s.weight_decay * p;
      const double m = s.step == 1 ? g : 0.9 * test::get(s.states[0], i) + g;
      test::put(s.states[0], i, m);
      test::put(s.value, i, p - s.lr * m);
    }
  }
};

TEST(CustomOptimizer, StepsAsTheLibrarysOwnWithTheSameFormula) {
  Cpu cpu;
  const NamedParameter a = make_parameter(cpu, "w", Shape{5, 3}, DType::f64, /*copy=*/true),
                       b = make_parameter(cpu, "w", Shape{5, 3}, DType::f64, /*copy=*/true);
  OptimizerOptions options;
  options.lr = 0.1;
  options.weight_decay = 0.01;
  options.schedule = {LrSchedule::Kind::linear, 1, 6, 0.5};
  options.rules = {{"w", 0.5, 0.02}};
  options.ema_decay = 0.5;
  const auto own =
      make_custom_optimizer({"mine", {"velocity"}}, std::make_unique<Momentum>(), {a}, options, *cpu.ops);
  options.hyperparameters = {{"momentum", 0.9}};
  const auto sgd = make_optimizer("sgd", {b}, options, *cpu.ops);
  EXPECT_STREQ(own->kind(), "mine");
  ASSERT_EQ(own->state(0).size(), 2u);
  EXPECT_EQ(own->state(0)[0].name, "velocity");
  EXPECT_EQ(own->state(0)[1].name, "ema");
  for (int step = 0; step < 4; ++step)
    for (Optimizer* const optimizer : {own.get(), sgd.get()}) {
      set_gradient(optimizer->parameters()[0], step);
      optimizer->step(0.5, 0.8, cpu.stream);
    }
  for (size_t i = 0; i < 15; ++i) {
    const auto at = static_cast<int64_t>(i);
    EXPECT_NEAR(test::get(a.parameter->shard, at), test::get(b.parameter->shard, at), 1e-14);
    EXPECT_EQ(test::get(a.parameter->shard_copy, at), test::get(b.parameter->shard_copy, at));
    EXPECT_NEAR(test::get(own->state(0)[1].tensor, at), test::get(sgd->state(0)[1].tensor, at), 1e-14);
  }
}

TEST(CustomOptimizer, RefusesStatesWithoutANameOfTheirOwn) {
  Cpu cpu;
  const auto refusal = [&](std::vector<std::string> states) {
    return error_of([&] {
             make_custom_optimizer({"mine", std::move(states)}, std::make_unique<Momentum>(),
                                   {make_parameter(cpu, "w", Shape{2})}, {}, *cpu.ops);
           })
        .message();
  };
  EXPECT_EQ(refusal({"m", ""}), "mine: states[1] has an empty name");
  EXPECT_EQ(refusal({"m", "m"}), "mine: states[0] is \"m\", as another state is");
  EXPECT_EQ(refusal({"a.b"}),
            "mine: states[0] is \"a.b\", but files name a state <state>.<parameter>; leave the dot out");
  EXPECT_EQ(refusal({"ema"}),
            "mine: states[0] is \"ema\", the name of the library's average of the parameters");
}

TEST(Optimizer, TakesTheRateOfACallback) {
  Cpu cpu;
  OptimizerOptions options;
  options.lr = 0.5;
  options.schedule = {LrSchedule::Kind::cosine, 1, 6, 0};
  const NamedParameter w = make_parameter(cpu, "w", Shape{2});
  const auto optimizer = make_optimizer("adamw", {w}, options, *cpu.ops);
  optimizer->set_schedule(
      [](int64_t step) { return step == 3 ? std::nan("") : 0.1 * static_cast<double>(step); });
  EXPECT_DOUBLE_EQ(optimizer->lr(), 0.05);
  for (int step = 0; step < 2; ++step) {
    set_gradient(w, step);
    optimizer->step(1, 1, cpu.stream);
  }
  const Error error = error_of([&] { optimizer->lr(); });
  EXPECT_EQ(error.code(), Code::invalid_argument);
  EXPECT_EQ(error.message(), text("adamw: the schedule's callback gave ", std::nan(""),
                                  " at step 3, not a finite number >= 0"));
}

}  // namespace
}  // namespace gangway

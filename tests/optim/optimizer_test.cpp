#include "optim/optimizer.h"

#include <limits>

#include "optim/optim_testing.h"

namespace gangway {
namespace {

using test::Cpu;
using test::error_of;
using test::make_parameter;
using test::set_gradient;

constexpr double kBeta1 = 0.8, kBeta2 = 0.95;

// AdamW of one element, in f64.
struct AdamWElement {
  double p, m = 0, v = 0;
  void step(double g, double lr, double decay, int step) {
    m = kBeta1 * m + (1 - kBeta1) * g;
    v = kBeta2 * v + (1 - kBeta2) * g * g;
    const double m_hat = m / (1 - std::pow(kBeta1, step)), v_hat = v / (1 - std::pow(kBeta2, step));
    p -= lr * (m_hat / (std::sqrt(v_hat) + 1e-8) + decay * p);
  }
};

OptimizerOptions adamw_options() {
  OptimizerOptions options;
  options.lr = 0.03;
  options.weight_decay = 0.1;
  options.hyperparameters = {{"beta1", kBeta1}, {"beta2", kBeta2}};
  options.schedule = {LrSchedule::Kind::linear, 2, 10, 0.5};
  return options;
}

void expect_adamw(DType dtype, DType moment, double tolerance) {
  Cpu cpu;
  for (const Shape& shape : {Shape{1}, Shape{7}, Shape{5, 13}, Shape{64, 33}}) {
    const NamedParameter named = make_parameter(cpu, "w", shape, dtype);
    OptimizerOptions options = adamw_options();
    options.hyperparameters["moment_dtype"] = moment;
    const auto optimizer = make_optimizer("adamw", {named}, options, *cpu.ops);
    std::vector<AdamWElement> expected;
    for (const double p : test::values(named.parameter->shard)) expected.push_back({p});
    for (int step = 1; step <= 5; ++step) {
      set_gradient(named, step);
      const double lr = options.lr * factor(options.schedule, step);
      EXPECT_DOUBLE_EQ(optimizer->lr(), lr);
      optimizer->step(0.5, 0.25, cpu.stream);
      EXPECT_EQ(optimizer->steps(), step);
      const std::vector<double> g = test::values(named.parameter->shard_grad->tensor);
      for (size_t i = 0; i < g.size(); ++i)
        expected[i].step(g[i] * 0.125, lr, shape.rank() > 1 ? 0.1 : 0, step);
    }
    const std::vector<double> got = test::values(named.parameter->shard);
    for (size_t i = 0; i < got.size(); ++i)
      ASSERT_NEAR(got[i], expected[i].p, tolerance) << shape.text() << " " << i;
  }
}

TEST(AdamW, StepsAsThePublishedFormula) {
  expect_adamw(DType::f64, DType::f32, 1e-13);  // f64 parameters have f64 moments
  expect_adamw(DType::f32, DType::f32, 2e-6);
  // Five steps, each of lr 0.03 at most in a direction of about 1, by moments that were rounded up to
  // five times.
  expect_adamw(DType::f32, DType::bf16, 5 * 0.03 * 5 * 0x1p-8);
}

TEST(AdamW, MomentsHaveTheAskedDtypeAndF64StaysF64) {
  Cpu cpu;
  const auto a = make_parameter(cpu, "a", Shape{3, 5}), b = make_parameter(cpu, "b", Shape{2}, DType::f64);
  OptimizerOptions options;
  options.hyperparameters["moment_dtype"] = DType::bf16;
  const auto optimizer = make_optimizer("adamw", {a, b}, options, *cpu.ops);
  ASSERT_EQ(optimizer->state(0).size(), 2u);
  EXPECT_EQ(optimizer->state(0)[0].name, "exp_avg");
  EXPECT_EQ(optimizer->state(0)[1].name, "exp_avg_sq");
  EXPECT_EQ(optimizer->state(0)[0].tensor.dtype(), DType::bf16);
  EXPECT_EQ(optimizer->state(0)[0].tensor.shape(), (Shape{3, 5}));
  EXPECT_EQ(optimizer->state(1)[1].tensor.dtype(), DType::f64);
  EXPECT_EQ(optimizer->state_bytes(), 2 * (15 * 2 + 2 * 8u));
  for (const double x : test::values(optimizer->state(0)[1].tensor)) EXPECT_EQ(x, 0);
}

TEST(AdamW, WritesTheCopyInTheSameStep) {
  Cpu cpu;
  const auto named = make_parameter(cpu, "w", Shape{9, 3}, DType::f32, /*copy=*/true);
  const auto optimizer = make_optimizer("adamw", {named}, adamw_options(), *cpu.ops);
  set_gradient(named, 1);
  optimizer->step(1, 1, cpu.stream);
  for (int64_t i = 0; i < 27; ++i)
    EXPECT_EQ(named.parameter->shard_copy.data<bf16_t>()[i].bits,
              to_bf16(named.parameter->shard.data<float>()[i]).bits);
}

TEST(AdamW, AGradientNobodyWroteIsZero) {
  Cpu cpu;
  const auto named = make_parameter(cpu, "w", Shape{4, 4}, DType::f64);
  const std::vector<double> before = test::values(named.parameter->shard);
  set_gradient(named, 1);
  named.parameter->shard_grad->written = false;
  OptimizerOptions options;
  options.lr = 0.5;
  options.weight_decay = 0.1;
  make_optimizer("adamw", {named}, options, *cpu.ops)->step(1, 1, cpu.stream);
  const std::vector<double> after = test::values(named.parameter->shard);
  for (size_t i = 0; i < after.size(); ++i) EXPECT_NEAR(after[i], before[i] * 0.95, 1e-15);
}

TEST(Optimizer, TheLastMatchingRuleWins) {
  Cpu cpu;
  std::vector<NamedParameter> parameters;
  for (const char* name : {"model.embed_tokens.weight", "model.layers.0.norm.weight",
                           "model.layers.1.norm.weight", "model.layers.1.bias", "lm_head.weight"})
    parameters.push_back(make_parameter(cpu, name,
                                        std::string(name).find("norm") != std::string::npos ||
                                                std::string(name).find("bias") != std::string::npos
                                            ? Shape{4}
                                            : Shape{4, 2},
                                        DType::f64));
  OptimizerOptions options;
  options.lr = 0.5;
  options.weight_decay = 0.1;
  options.rules = {{"model.*.*.norm.weight", 1, 0.1, false},  // a number holds for 1-d ones, too
                   {"model.layers.1.norm.weight", 2, 0.2, false},
                   {"lm_head.*", 3, 0, false},
                   {"lm_head.weight", 1, 0.4, true}};
  std::vector<std::vector<double>> before;
  for (const NamedParameter& p : parameters) before.push_back(test::values(p.parameter->shard));
  const auto optimizer = make_optimizer("sgd", parameters, options, *cpu.ops);
  optimizer->step(1, 1, cpu.stream);  // no gradients: only the decay acts
  const double kept[] = {1 - 0.5 * 0.1, 1 - 0.5 * 0.1, 1 - 0.5 * 2 * 0.2, 1, 1};
  for (size_t i = 0; i < parameters.size(); ++i) {
    const std::vector<double> after = test::values(parameters[i].parameter->shard);
    for (size_t j = 0; j < after.size(); ++j)
      EXPECT_NEAR(after[j], before[i][j] * kept[i], 1e-15) << parameters[i].name;
  }
}

TEST(Optimizer, ARuleForTheRateAloneLeavesOneDimensionalParametersUndecayed) {
  Cpu cpu;
  const auto norm = make_parameter(cpu, "norm.weight", Shape{4}, DType::f64),
             linear = make_parameter(cpu, "linear.weight", Shape{4, 2}, DType::f64);
  OptimizerOptions options;
  options.lr = 0.5;
  options.weight_decay = 0.1;
  options.rules = {{"**", 2}};
  const std::vector<double> before = test::values(norm.parameter->shard),
                            matrix = test::values(linear.parameter->shard);
  // There are no gradients, so only the decay acts.
  make_optimizer("sgd", {norm, linear}, options, *cpu.ops)->step(1, 1, cpu.stream);
  EXPECT_EQ(test::values(norm.parameter->shard), before);
  const std::vector<double> after = test::values(linear.parameter->shard);
  for (size_t i = 0; i < after.size(); ++i) EXPECT_NEAR(after[i], matrix[i] * (1 - 0.5 * 2 * 0.1), 1e-15);
}

TEST(Optimizer, FrozenParametersHaveNoStateAndStay) {
  Cpu cpu;
  const auto trained = make_parameter(cpu, "a.weight", Shape{4, 2}),
             by_rule = make_parameter(cpu, "b.weight", Shape{4, 2}),
             by_model = make_parameter(cpu, "c.weight", Shape{4, 2});
  by_model.parameter->trainable = false;
  by_model.parameter->shard_grad = nullptr;
  OptimizerOptions options;
  options.weight_decay = 0.1;
  options.rules = {{"b.*", 1, -1, true}, {"c.*", 1, -1, false}};
  const auto optimizer = make_optimizer("adamw", {trained, by_rule, by_model}, options, *cpu.ops);
  EXPECT_EQ(optimizer->state(0).size(), 2u);
  EXPECT_TRUE(optimizer->state(1).empty());
  EXPECT_TRUE(optimizer->state(2).empty());
  EXPECT_EQ(optimizer->state_bytes(), 2u * 8 * 4);
  const auto before_b = test::values(by_rule.parameter->shard),
             before_c = test::values(by_model.parameter->shard);
  set_gradient(trained, 1);
  set_gradient(by_rule, 1);
  optimizer->step(1, 1, cpu.stream);
  EXPECT_EQ(test::values(by_rule.parameter->shard), before_b);
  EXPECT_EQ(test::values(by_model.parameter->shard), before_c);
}

TEST(Optimizer, ARankWithoutRowsStepsNothing) {
  Cpu cpu;
  auto empty = make_parameter(cpu, "w", Shape{0, 3});
  empty.parameter->shape = Shape{2, 3};
  auto absent = make_parameter(cpu, "v", Shape{1});
  absent.parameter->shard = Tensor();
  absent.parameter->shard_grad = nullptr;
  const auto optimizer = make_optimizer("adamw", {empty, absent}, {}, *cpu.ops);
  optimizer->step(1, 1, cpu.stream);
  EXPECT_EQ(optimizer->steps(), 1);
  EXPECT_EQ(optimizer->state_bytes(), 0u);
}

// SGD of one element, in f64.
struct SgdElement {
  double p, m = 0;
  void step(double g, double lr, double decay, double momentum, bool nesterov, int step) {
    g += decay * p;
    if (momentum > 0) {
      m = step == 1 ? g : momentum * m + g;
      g = nesterov ? g + momentum * m : m;
    }
    p -= lr * g;
  }
};

TEST(Sgd, StepsAsThePlainFormula) {
  Cpu cpu;
  for (const double momentum : {0.0, 0.9})
    for (const bool nesterov : {false, true}) {
      if (nesterov && momentum == 0) continue;
      const NamedParameter named = make_parameter(cpu, "w", Shape{5, 13}, DType::f64);
      OptimizerOptions options;
      options.lr = 0.1;
      options.weight_decay = 0.01;
      options.hyperparameters = {{"momentum", momentum}, {"nesterov", nesterov}};
      const auto optimizer = make_optimizer("sgd", {named}, options, *cpu.ops);
      EXPECT_EQ(optimizer->state(0).size(), momentum > 0 ? 1u : 0u);
      std::vector<SgdElement> expected;
      for (const double p : test::values(named.parameter->shard)) expected.push_back({p});
      for (int step = 1; step <= 4; ++step) {
        set_gradient(named, step);
        optimizer->step(2, 0.5, cpu.stream);
        const std::vector<double> g = test::values(named.parameter->shard_grad->tensor);
        for (size_t i = 0; i < g.size(); ++i) expected[i].step(g[i], 0.1, 0.01, momentum, nesterov, step);
      }
      const std::vector<double> got = test::values(named.parameter->shard);
      for (size_t i = 0; i < got.size(); ++i)
        ASSERT_NEAR(got[i], expected[i].p, 1e-13) << momentum << nesterov;
    }
}

TEST(Optimizer, RefusesWithFieldAndValue) {
  Cpu cpu;
  const NamedParameter w = make_parameter(cpu, "w", Shape{2, 2});
  struct Row {
    void (*change)(OptimizerOptions&);
    const char* words;
    bool sgd;
  };
  const Row table[] = {
      {[](OptimizerOptions& o) { o.lr = -1; }, "lr = -1", false},
      {[](OptimizerOptions& o) { o.lr = std::numeric_limits<double>::infinity(); }, "lr = inf", true},
      {[](OptimizerOptions& o) { o.weight_decay = -0.5; }, "weight_decay = -0.5", false},
      {[](OptimizerOptions& o) { o.hyperparameters["beta1"] = 1.0; }, "beta1 = 1", false},
      {[](OptimizerOptions& o) { o.hyperparameters["beta2"] = -0.1; }, "beta2 = -0.1", false},
      {[](OptimizerOptions& o) { o.hyperparameters["eps"] = 0.0; }, "eps = 0", false},
      {[](OptimizerOptions& o) { o.hyperparameters["moment_dtype"] = DType::f16; }, "moment_dtype = f16",
       false},
      {[](OptimizerOptions& o) { o.hyperparameters["momentum"] = 1.0; }, "momentum = 1", true},
      {[](OptimizerOptions& o) { o.hyperparameters["nesterov"] = true; }, "nesterov needs momentum", true},
      {[](OptimizerOptions& o) { o.schedule.warmup = -2; }, "warmup_steps = -2", true},
      {[](OptimizerOptions& o) {
         o.rules = {{"", 1, -1, false}};
       },
       "rules[0] (\"\") has an empty pattern", false},
      {[](OptimizerOptions& o) {
         o.rules = {{"w", -1, -1, false}};
       },
       "rules[0] (\"w\").lr_scale = -1", false},
      {[](OptimizerOptions& o) {
         o.rules = {{"w", 1, -2, false}};
       },
       "rules[0] (\"w\").weight_decay = -2", true},
      {[](OptimizerOptions& o) {
         o.rules = {{"*", 1, -1, false}, {"norm.*", 1, -1, false}};
       },
       "rules[1] \"norm.*\" matches none of 1 parameters", false},
  };
  for (const Row& row : table) {
    OptimizerOptions options;
    row.change(options);
    const Error error = error_of([&] { make_optimizer(row.sgd ? "sgd" : "adamw", {w}, options, *cpu.ops); });
    EXPECT_EQ(error.code(), Code::invalid_argument) << row.words;
    EXPECT_NE(error.message().find(row.words), std::string::npos) << error.message();
  }
}

TEST(Optimizer, ARateThatIsNoFiniteNumberIsRefusedAndTheOldOneStays) {
  Cpu cpu;
  const auto optimizer = make_optimizer("sgd", {make_parameter(cpu, "w", Shape{2, 2})}, {}, *cpu.ops);
  optimizer->set_lr(0.25);
  for (const double lr : {-1.0, std::numeric_limits<double>::infinity(), std::nan("")}) {
    const Error error = error_of([&] { optimizer->set_lr(lr); });
    EXPECT_EQ(error.code(), Code::invalid_argument);
    EXPECT_EQ(error.message(), text("sgd: lr = ", lr, " is not a finite number >= 0"));
  }
  EXPECT_EQ(optimizer->lr(), 0.25);
}

TEST(Optimizer, ContinuesWithTheStepsThatAreSet) {
  Cpu cpu;
  OptimizerOptions options;
  options.lr = 0.01;
  const NamedParameter run = make_parameter(cpu, "w", Shape{3, 5}, DType::f64);
  const NamedParameter resumed = make_parameter(cpu, "w", Shape{3, 5}, DType::f64);
  const auto all = make_optimizer("adamw", {run}, options, *cpu.ops),
             rest = make_optimizer("adamw", {resumed}, options, *cpu.ops);
  for (int step = 0; step < 3; ++step) {
    set_gradient(run, step);
    all->step(1, 1, cpu.stream);
  }
  for (int64_t i = 0; i < 15; ++i) {
    test::put(resumed.parameter->shard, i, test::get(run.parameter->shard, i));
    for (size_t state : {0, 1})
      test::put(rest->state(0)[state].tensor, i, test::get(all->state(0)[state].tensor, i));
  }
  rest->set_steps(3);
  for (const auto& optimizer : {all.get(), rest.get()}) {
    set_gradient(optimizer->parameters()[0], 3);
    optimizer->step(1, 1, cpu.stream);
    EXPECT_EQ(optimizer->steps(), 4);
  }
  EXPECT_EQ(test::values(resumed.parameter->shard), test::values(run.parameter->shard));
}

// The bias correction of a parameter that became trainable after 7 steps is that of a new run.
TEST(Optimizer, CountsAParametersStepsFromItsFirst) {
  Cpu cpu;
  const NamedParameter fresh = make_parameter(cpu, "w", Shape{4}, DType::f64);
  const NamedParameter late = make_parameter(cpu, "w", Shape{4}, DType::f64);
  const auto first = make_optimizer("adamw", {fresh}, {}, *cpu.ops),
             later = make_optimizer("adamw", {late}, {}, *cpu.ops);
  later->set_steps(7);
  later->set_first_step(0, 7);
  for (const auto& optimizer : {first.get(), later.get()}) {
    set_gradient(optimizer->parameters()[0], 0);
    optimizer->step(1, 1, cpu.stream);
  }
  EXPECT_EQ(test::values(late.parameter->shard), test::values(fresh.parameter->shard));
  EXPECT_EQ(later->first_step(0), 7);
}

TEST(Optimizer, StepsBelowZeroAreRefused) {
  Cpu cpu;
  const auto optimizer = make_optimizer("adamw", {make_parameter(cpu, "w", Shape{4})}, {}, *cpu.ops);
  EXPECT_EQ(error_of([&] { optimizer->set_steps(-1); }).message(), "adamw: steps = -1 is below 0");
  EXPECT_EQ(error_of([&] { optimizer->set_first_step(0, -2); }).message(),
            "adamw: first step = -2 is below 0");
}

TEST(Optimizer, KnowsTheRateOfItsOptionsAfterSetLr) {
  Cpu cpu;
  OptimizerOptions options;
  options.lr = 0.5;
  const auto optimizer = make_optimizer("adamw", {make_parameter(cpu, "w", Shape{4})}, options, *cpu.ops);
  optimizer->set_lr(0.25);
  EXPECT_EQ(optimizer->base_lr(), 0.25);
  EXPECT_EQ(optimizer->configured_lr(), 0.5);
}

TEST(Optimizer, NeedsStorage) {
  Cpu cpu;
  NamedParameter bare{"w", std::make_shared<Parameter>("w", Shape{2}, Init::zeros())};
  const Error error = error_of([&] { make_optimizer("adamw", {bare}, {}, *cpu.ops); });
  EXPECT_EQ(error.code(), Code::invalid_state);
  EXPECT_NE(error.message().find("materialize"), std::string::npos);
}

}  // namespace
}  // namespace gangway

// The table of optimizers: what holds for every row.
#include "optim/kind.h"

#include <limits>

#include "optim/optim_testing.h"

namespace gangway {
namespace {

using test::Cpu;
using test::error_of;
using test::make_parameter;

struct Interval {
  char opening = 0, closing = 0;
  double low = 0, high = 0;
};

Interval interval_of(const Hyperparameter& row) {
  Interval i;
  EXPECT_EQ(std::sscanf(row.range, "%c%lf, %lf%c", &i.opening, &i.low, &i.high, &i.closing), 4) << row.range;
  return i;
}

std::vector<double> outside(const Interval& i) {
  std::vector<double> values = {std::nan(""), i.low - 1};
  if (i.opening == '(') values.push_back(i.low);
  if (i.closing == ')') values.push_back(i.high);
  values.push_back(std::numeric_limits<double>::infinity());
  return values;
}

TEST(OptimizerKind, EveryNumberIsRefusedOutsideItsRange) {
  for (const OptimizerKind* const kind : optimizer_kinds())
    for (const Hyperparameter& row : kind->hyperparameters) {
      if (!std::holds_alternative<double>(row.standard)) continue;
      for (const double value : outside(interval_of(row))) {
        const Error error = error_of([&] { complete(*kind, {{row.name, value}}); });
        EXPECT_EQ(error.code(), Code::invalid_argument);
        EXPECT_EQ(error.message(), text(kind->name, ": ", row.name, " = ", value, " is outside ", row.range));
      }
    }
}

TEST(OptimizerKind, EveryDtypeIsF32OrBf16) {
  for (const OptimizerKind* const kind : optimizer_kinds())
    for (const Hyperparameter& row : kind->hyperparameters) {
      if (!std::holds_alternative<DType>(row.standard)) continue;
      EXPECT_EQ(std::string(row.range), "f32 or bf16");
      EXPECT_EQ(std::get<DType>(complete(*kind, {{row.name, DType::bf16}}).at(row.name)), DType::bf16);
      const Error error = error_of([&] { complete(*kind, {{row.name, DType::f16}}); });
      EXPECT_EQ(error.message(), text(kind->name, ": ", row.name, " = f16 is neither f32 nor bf16"));
    }
}

TEST(OptimizerKind, WhatIsNotGivenHasItsDefault) {
  for (const OptimizerKind* const kind : optimizer_kinds()) {
    const HyperValues values = complete(*kind, {});
    EXPECT_EQ(values.size(), kind->hyperparameters.size());
    for (const Hyperparameter& row : kind->hyperparameters) EXPECT_EQ(values.at(row.name), row.standard);
  }
}

TEST(OptimizerKind, AnUnknownHyperparameterIsRefused) {
  const Error error = error_of([] { complete(optimizer_kind("sgd"), {{"beta1", 0.5}}); });
  EXPECT_EQ(error.code(), Code::invalid_argument);
  EXPECT_EQ(error.message(), "sgd: there is no hyperparameter beta1");
}

TEST(OptimizerKind, AValueOfAnotherTypeIsRefused) {
  const Error error = error_of([] { complete(optimizer_kind("sgd"), {{"momentum", int64_t{0}}}); });
  EXPECT_EQ(error.code(), Code::invalid_argument);
  EXPECT_EQ(error.message(), "sgd: momentum is of another type than its default");
}

TEST(OptimizerKind, AnUnknownKindIsRefusedWithTheListOfAll) {
  const Error error = error_of([] { optimizer_kind("adam"); });
  EXPECT_EQ(error.code(), Code::invalid_argument);
  EXPECT_NE(error.message().find("there is no optimizer \"adam\"; there are adamw, "), std::string::npos);
}

// What ranks compare has each hyperparameter once, under its name.
TEST(OptimizerKind, FactsHaveEveryHyperparameter) {
  Cpu cpu;
  for (const OptimizerKind* const kind : optimizer_kinds()) {
    Facts facts;
    make_optimizer(kind->name, {make_parameter(cpu, "w", Shape{2, 2})}, {}, *cpu.ops)->add_facts(facts);
    for (const Hyperparameter& row : kind->hyperparameters)
      EXPECT_NE(facts.text().find(text("\n", row.name, " ")), std::string::npos) << row.name;
  }
}

TEST(OptimizerKind, StatesHaveTheNamesOfTheTableAndTheShapeOfTheShard) {
  Cpu cpu;
  for (const OptimizerKind* const kind : optimizer_kinds()) {
    OptimizerOptions options;
    if (std::string(kind->name) == "sgd") options.hyperparameters = {{"momentum", 0.9}};
    const auto optimizer =
        make_optimizer(kind->name, {make_parameter(cpu, "w", Shape{5, 3})}, options, *cpu.ops);
    ASSERT_EQ(optimizer->state(0).size(), kind->states.size()) << kind->name;
    for (size_t i = 0; i < kind->states.size(); ++i) {
      EXPECT_EQ(optimizer->state(0)[i].name, kind->states[i].name);
      EXPECT_EQ(optimizer->state(0)[i].tensor.shape(), (Shape{5, 3}));
      EXPECT_EQ(optimizer->state(0)[i].shape, (Shape{5, 3}));
      EXPECT_EQ(optimizer->state(0)[i].box().shape, (Shape{5, 3}));
      for (const double x : test::values(optimizer->state(0)[i].tensor)) EXPECT_EQ(x, 0);
    }
  }
}

}  // namespace
}  // namespace gangway

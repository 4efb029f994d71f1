// The table of optimizers: what holds for every row.
#include "optim/kind.h"

#include <algorithm>
#include <limits>
#include <map>

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
  EXPECT_NE(error.message().find("there is no optimizer \"adam\"; there are adafactor, adamw, "),
            std::string::npos);
}

// What ranks compare has each hyperparameter once, under its name.
TEST(OptimizerKind, SignatureHasEveryHyperparameter) {
  Cpu cpu;
  for (const OptimizerKind* const kind : optimizer_kinds()) {
    CallSignature signature;
    make_optimizer(kind->name, {make_parameter(cpu, "w", Shape{2, 2})}, {}, *cpu.ops)
        ->add_to_signature(signature);
    for (const Hyperparameter& row : kind->hyperparameters)
      EXPECT_NE(signature.text().find(text("\n", row.name, " ")), std::string::npos) << row.name;
  }
}

// The states of a matrix and of a vector, by name: dtype and shape.
std::map<std::string, std::string> states_of(const OptimizerKind& kind, const Shape& shape) {
  Cpu cpu;
  OptimizerOptions options;
  if (std::string(kind.name) == "sgd") options.hyperparameters = {{"momentum", 0.9}};
  const auto optimizer = make_optimizer(kind.name, {make_parameter(cpu, "w", shape)}, options, *cpu.ops);
  std::map<std::string, std::string> states;
  for (const Optimizer::Slot& slot : optimizer->state(0)) {
    EXPECT_TRUE(std::any_of(kind.states.begin(), kind.states.end(),
                            [&](const StateName& state) { return slot.name == state.name; }))
        << kind.name << " " << slot.name;
    EXPECT_EQ(slot.tensor.shape(), slot.shape) << kind.name << " " << slot.name;
    EXPECT_EQ(slot.box().shape, slot.shape) << kind.name << " " << slot.name;
    const auto* const bytes = static_cast<const unsigned char*>(slot.tensor.raw());
    EXPECT_TRUE(
        std::all_of(bytes, bytes + slot.tensor.bytes(), [](unsigned char byte) { return byte == 0; }));
    states[slot.name] = slot.tensor.text();
  }
  return states;
}

TEST(OptimizerKind, StatesHaveTheNamesOfTheTableAndSayTheirShapes) {
  using States = std::map<std::string, std::string>;
  const States averages = {{"exp_avg", "f32 [5, 130]"}, {"exp_avg_sq", "f32 [5, 130]"}};
  const States of_vector = {{"exp_avg", "f32 [7]"}, {"exp_avg_sq", "f32 [7]"}};
  const std::map<std::string, States> matrices = {
      {"adafactor", {{"row_var", "f32 [5, 1]"}, {"col_var", "f32 [1, 130]"}}},
      {"adamw", averages},
      {"adamw8bit",
       {{"exp_avg", "u8 [5, 130]"},
        {"exp_avg_sq", "u8 [5, 130]"},
        {"exp_avg_scale", "f32 [5, 3]"},
        {"exp_avg_sq_scale", "f32 [5, 3]"}}},
      {"lion", {{"exp_avg", "f32 [5, 130]"}}},
      {"muon", {{"momentum_buffer", "f32 [5, 130]"}}},
      {"sgd", {{"momentum", "f32 [5, 130]"}}},
  };
  const std::map<std::string, States> vectors = {
      {"adafactor", {{"variance", "f32 [7]"}}}, {"adamw", of_vector}, {"adamw8bit", of_vector},
      {"lion", {{"exp_avg", "f32 [7]"}}},       {"muon", of_vector},  {"sgd", {{"momentum", "f32 [7]"}}},
  };
  for (const OptimizerKind* const kind : optimizer_kinds()) {
    EXPECT_EQ(states_of(*kind, Shape{5, 130}), matrices.at(kind->name)) << kind->name;
    EXPECT_EQ(states_of(*kind, Shape{7}), vectors.at(kind->name)) << kind->name;
  }
}

}  // namespace
}  // namespace gangway

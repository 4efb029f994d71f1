#include "optim/kind.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/error.h"

namespace gangway {

extern const OptimizerKind kAdafactor, kAdamW, kAdamW8bit, kLion, kMuon, kSgd;

std::span<const OptimizerKind* const> optimizer_kinds() {
  static constexpr const OptimizerKind* kKinds[] = {&kAdafactor, &kAdamW, &kAdamW8bit, &kLion, &kMuon, &kSgd};
  return kKinds;
}

const OptimizerKind& optimizer_kind(std::string_view name) {
  std::string known;
  for (const OptimizerKind* const kind : optimizer_kinds()) {
    if (kind->name == name) return *kind;
    known += (known.empty() ? "" : ", ") + std::string(kind->name);
  }
  fail(Code::invalid_argument, "there is no optimizer \"", name, "\"; there are ", known);
}

namespace {

bool inside(const char* range, double value) {
  char opening = 0, closing = 0;
  double low = 0, high = 0;
  const int read = std::sscanf(range, "%c%lf, %lf%c", &opening, &low, &high, &closing);
  GW_CHECK(read, ==, 4);
  return (opening == '[' ? value >= low : value > low) && (closing == ']' ? value <= high : value < high);
}

void check_range(const OptimizerKind& kind, const Hyperparameter& row, const HyperValue& value) {
  const auto check_number = [&](auto number) {
    if (!inside(row.range, static_cast<double>(number)))
      fail(Code::invalid_argument, kind.name, ": ", row.name, " = ", number, " is outside ", row.range);
  };
  if (const auto* number = std::get_if<double>(&value)) check_number(*number);
  if (const auto* number = std::get_if<int64_t>(&value)) check_number(*number);
  const auto* dtype = std::get_if<DType>(&value);
  if (dtype != nullptr && *dtype != DType::f32 && *dtype != DType::bf16)
    fail(Code::invalid_argument, kind.name, ": ", row.name, " = ", name(*dtype), " is neither f32 nor bf16");
}

const Hyperparameter& row_of(const OptimizerKind& kind, const std::string& name) {
  const auto row = std::find_if(kind.hyperparameters.begin(), kind.hyperparameters.end(),
                                [&](const Hyperparameter& h) { return h.name == name; });
  if (row == kind.hyperparameters.end())
    fail(Code::invalid_argument, kind.name, ": there is no hyperparameter ", name);
  return *row;
}

}  // namespace

HyperValues complete(const OptimizerKind& kind, const HyperValues& given) {
  HyperValues values;
  for (const Hyperparameter& row : kind.hyperparameters) values[row.name] = row.standard;
  for (const auto& [name, value] : given) {
    if (row_of(kind, name).standard.index() != value.index())
      fail(Code::invalid_argument, kind.name, ": ", name, " is of another type than its default");
    values[name] = value;
  }
  for (const Hyperparameter& row : kind.hyperparameters) check_range(kind, row, values.at(row.name));
  return values;
}

void add_facts(const OptimizerKind& kind, const HyperValues& values, Facts& facts) {
  for (const Hyperparameter& row : kind.hyperparameters)
    std::visit([&](auto value) { facts.add(row.name, value); }, values.at(row.name));
}

}  // namespace gangway

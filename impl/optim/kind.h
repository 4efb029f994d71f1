// The table of optimizers. Each kind has one row, in the file of its update (adamw.cpp, sgd.cpp). The row
// is the only place that states the kind's hyperparameters and states: the checks, the facts that ranks
// compare, the C options and the classes of the bindings are derived from it. capi/optimizers.py reads
// the rows as text, so they hold literals only.
//
// Thread rule: constants and pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/dtype.h"
#include "base/facts.h"

namespace gangway {

class Ops;
class Optimizer;
class WholeTensors;
struct NamedParameter;
struct OptimizerOptions;

using HyperValue = std::variant<double, int64_t, bool, DType>;
using HyperValues = std::map<std::string, HyperValue, std::less<>>;

// A hyperparameter of one kind. Learning rate, weight decay, schedule, rules and loss scale are common to
// all kinds.
struct Hyperparameter {
  const char* name;
  HyperValue standard;  // the default; its type is the type of the hyperparameter
  const char* range;    // a number: an interval such as "[0, 1)"; a dtype: "f32 or bf16"; a flag: ""
  const char* doc;      // a few words for the C header and the bindings
};

// A tensor that an optimizer keeps for each parameter. Files and gw_parameter_state use this name.
struct StateName {
  const char* name;
  const char* doc;
};

struct OptimizerKind {
  const char* name;          // of the C functions: gw_<name>_create
  const char* title;         // of the class in the bindings
  const char* doc;           // one sentence
  double lr;                 // default learning rate
  double weight_decay;       // default weight decay
  bool mixes_adamw = false;  // steps some parameters by AdamW: OptimizerRule::adamw says which
  std::span<const StateName> states;
  std::span<const Hyperparameter> hyperparameters;
  std::unique_ptr<Optimizer> (*make)(const OptimizerKind& kind, std::vector<NamedParameter> parameters,
                                     const OptimizerOptions& options, Ops& ops,
                                     std::unique_ptr<WholeTensors> whole);
};

std::span<const OptimizerKind* const> optimizer_kinds();
// INVALID_ARGUMENT: no such kind; the text lists all.
const OptimizerKind& optimizer_kind(std::string_view name);

// Returns a value for every hyperparameter of `kind`: the given one, else the default. INVALID_ARGUMENT:
// an unknown name, a value of another type, or a value outside its range.
HyperValues complete(const OptimizerKind& kind, const HyperValues& given);
void add_facts(const OptimizerKind& kind, const HyperValues& values,
               Facts& facts);  // in the order of the table

}  // namespace gangway

#include "optim/settings.h"

#include <charconv>
#include <set>

#include "base/error.h"

namespace gangway {
namespace {

[[noreturn]] void refuse(const OptimizerKind& kind, const std::string& name, const std::string& value,
                         const char* wanted) {
  fail(Code::invalid_argument, kind.name, ": ", name, " = ", value, " is not ", wanted);
}

template <typename Number>
Number number_of(const OptimizerKind& kind, const std::string& name, const std::string& value,
                 const char* wanted) {
  Number number{};
  const char* const last = value.data() + value.size();
  const auto [end, error] = std::from_chars(value.data(), last, number);
  if (error != std::errc() || end != last) refuse(kind, name, value, wanted);
  return number;
}

// Reads a value in the type that `field` has now.
void read(const OptimizerKind& kind, const std::string& name, const std::string& value, double& field) {
  field = number_of<double>(kind, name, value, "a number");
}
void read(const OptimizerKind& kind, const std::string& name, const std::string& value, int64_t& field) {
  field = number_of<int64_t>(kind, name, value, "a whole number");
}
void read(const OptimizerKind& kind, const std::string& name, const std::string& value, bool& field) {
  if (value != "true" && value != "false") refuse(kind, name, value, "true or false");
  field = value == "true";
}
void read(const OptimizerKind& kind, const std::string& name, const std::string& value, DType& field) {
  for (const DType dtype : {DType::f32, DType::bf16})
    if (value == gangway::name(dtype)) return void(field = dtype);
  refuse(kind, name, value, "f32 or bf16");
}
void read(const OptimizerKind& kind, const std::string& name, const std::string& value,
          LrSchedule::Kind& field) {
  std::string known;
  for (int32_t i = 0; i < schedule_count(); ++i) {
    const auto row = static_cast<LrSchedule::Kind>(i);
    if (value == schedule_name(row)) return void(field = row);
    known += (i > 0 ? ", " : "one of ") + std::string(schedule_name(row));
  }
  refuse(kind, name, value, known.c_str());
}

// Reads one option; false: there is none of this name.
bool read_option(const OptimizerKind& kind, const std::string& name, const std::string& value,
                 OptimizerOptions& o) {
  const auto as = [&](const char* option, auto& field) {
    if (name != option) return false;
    read(kind, name, value, field);
    return true;
  };
  if (as("lr", o.lr) || as("weight_decay", o.weight_decay) || as("schedule", o.schedule.kind) ||
      as("warmup_steps", o.schedule.warmup) || as("total_steps", o.schedule.total) ||
      as("decay_steps", o.schedule.decay) || as("last_lr_ratio", o.schedule.final_ratio) ||
      as("ema_decay", o.ema_decay) || as("loss_scale", o.loss_scale.fixed) ||
      as("initial_loss_scale", o.loss_scale.initial) || as("loss_scale_interval", o.loss_scale.interval))
    return true;
  for (const Hyperparameter& row : kind.hyperparameters) {
    if (name != row.name) continue;
    HyperValue field = row.standard;
    std::visit([&](auto& typed) { read(kind, name, value, typed); }, field);
    o.hyperparameters[name] = field;
    return true;
  }
  return false;
}

std::string names_of(const OptimizerKind& kind) {
  std::string all =
      "lr, weight_decay, schedule, warmup_steps, total_steps, decay_steps, last_lr_ratio, ema_decay, "
      "loss_scale, "
      "initial_loss_scale, loss_scale_interval";
  for (const Hyperparameter& row : kind.hyperparameters) all += ", " + std::string(row.name);
  return all;
}

}  // namespace

OptimizerOptions options_from(const OptimizerKind& kind,
                              const std::vector<std::pair<std::string, std::string>>& settings) {
  OptimizerOptions options;
  options.lr = kind.lr;
  options.weight_decay = kind.weight_decay;
  std::set<std::string> seen;
  for (const auto& [name, value] : settings) {
    if (!seen.insert(name).second) fail(Code::invalid_argument, kind.name, ": ", name, " is given twice");
    if (!read_option(kind, name, value, options))
      fail(Code::invalid_argument, kind.name, ": there is no option ", name, "; there are ", names_of(kind));
  }
  return options;
}

}  // namespace gangway

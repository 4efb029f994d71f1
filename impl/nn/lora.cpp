#include "nn/lora.h"

#include <cmath>
#include <map>

#include "base/philox.h"
#include "nn/attention.h"
#include "nn/linear_choice.h"

namespace gangway {
namespace {

constexpr char kAName[] = "lora_A.weight", kBName[] = "lora_B.weight";

// Marks the parameters of adapters, gives access to what they share, and makes the first values of A.
class AdapterValues final : public Init::Initializer {
 public:
  AdapterValues(std::shared_ptr<LoraSettings> settings, const std::string& name, int64_t in)
      : settings(std::move(settings)), key_(philox_key(this->settings->options.seed, name)), in_(in) {}

  void fill(int64_t first_row, int64_t, void* out, size_t count, DType dtype) override {
    const double bound = 1 / std::sqrt(static_cast<double>(in_));
    const auto first = static_cast<uint64_t>(first_row * in_);
    for (size_t i = 0; i < count; ++i) {
      const double value = (2 * philox_uniform(key_, first + i) - 1) * bound;
      if (dtype == DType::f64)
        static_cast<double*>(out)[i] = value;
      else
        static_cast<float*>(out)[i] = static_cast<float>(value);
    }
  }

  const std::shared_ptr<LoraSettings> settings;

 private:
  const uint64_t key_;
  const int64_t in_;
};

const AdapterValues* adapter_values(const Parameter& parameter) {
  return dynamic_cast<const AdapterValues*>(parameter.init.initializer.get());
}

void check(const LoraOptions& o) {
  if (o.rank < 1 || o.rank > kMostWidth)
    fail(Code::invalid_argument, "lora: rank is ", o.rank, ", outside [1, ", kMostWidth, "]");
  if (!(std::isfinite(o.alpha) && o.alpha > 0))
    fail(Code::invalid_argument, "lora: alpha is ", o.alpha, ", not a finite number over 0");
  if (!(o.dropout >= 0 && o.dropout < 1))
    fail(Code::invalid_argument, "lora: dropout is ", o.dropout, ", outside [0, 1)");
}

ParameterPtr find(const std::map<std::string, ParameterPtr>& by_name, const std::string& name) {
  const auto at = by_name.find(name);
  if (at == by_name.end()) fail(Code::internal, "lora: the model has no parameter ", name);
  return at->second;
}

}  // namespace

double LoraOptions::scale() const {
  const auto r = static_cast<double>(rank);
  return alpha / (rank_stabilized ? std::sqrt(r) : r);
}

void apply_lora(const ModulePtr& root, const LoraOptions& options) {
  check(options);
  if (lora_settings(named_parameters(*root)) != nullptr)
    fail(Code::invalid_state, "lora: the model has adapters already; give all patterns to one call");
  const std::map<std::string, Linear*> chosen =
      chosen_linears(root, options.patterns, {"lora", "has an adapter", "have an adapter"});
  for (const NamedParameter& p : named_parameters(*root)) p.parameter->trainable = false;
  const auto settings = std::make_shared<LoraSettings>(LoraSettings{options});
  for (const auto& [path, linear] : chosen) {
    if (linear->lora() != nullptr) continue;  // one object at several places of the tree
    const std::string name = path.empty() ? kAName : path + "." + kAName;
    const auto values = std::make_shared<AdapterValues>(settings, name, linear->weight().shape[1]);
    linear->add_lora(settings, {kAName, {Init::Kind::fill, 0, values}},
                     {kBName, {Init::Kind::zeros, 0, values}});
  }
}

bool is_adapter(const Parameter& parameter) { return adapter_values(parameter) != nullptr; }

std::vector<LoraLayer> lora_layers(const std::vector<NamedParameter>& parameters) {
  std::map<std::string, ParameterPtr> by_name;
  for (const NamedParameter& p : parameters) by_name.emplace(p.name, p.parameter);
  std::vector<LoraLayer> layers;
  for (const NamedParameter& p : parameters) {
    if (!is_adapter(*p.parameter) || p.parameter->name != kAName) continue;
    const std::string prefix = p.name.substr(0, p.name.size() - (sizeof kAName - 1));
    layers.push_back({prefix, find(by_name, prefix + "weight"), p.parameter, find(by_name, prefix + kBName)});
  }
  return layers;
}

std::shared_ptr<LoraSettings> lora_settings(const std::vector<NamedParameter>& parameters) {
  for (const NamedParameter& p : parameters)
    if (const AdapterValues* values = adapter_values(*p.parameter)) return values->settings;
  return nullptr;
}

}  // namespace gangway

#include "checkpoint/run/model_record.h"

#include "base/error.h"
#include "base/json.h"
#include "base/json_scalars.h"
#include "checkpoint/lora_files.h"
#include "checkpoint/run/state_text.h"
#include "nn/linear.h"

namespace gangway {
namespace {

constexpr char kBase[] = "base_hash", kComputes[] = "param_dtype", kRecord[] = "models of the checkpoint";

// The dtype is that of the first tensor; others may differ if the masters do.
DType dtype_of(const SavedSet& set) {
  return set.tensors.empty() ? DType::f32 : set.tensors.begin()->second.dtype;
}

DType compute_dtype(Model& model) {
  const auto& parameters = model.inspect().parameters();
  if (parameters.empty()) return DType::f32;
  const Parameter& first = *parameters.front().parameter;
  return first.compute_dtype == DType{} ? first.dtype : first.compute_dtype;
}

const Fp8Products* first_fp8(Module& module) {
  if (const auto* const linear = dynamic_cast<Linear*>(&module);
      linear != nullptr && linear->fp8() != nullptr)
    return linear->fp8();
  for (const Module::Child& child : module.children())
    if (const Fp8Products* const found = first_fp8(*child.module)) return found;
  return nullptr;
}

std::string word_of(Fp8Scaling scaling) {
  return scaling == Fp8Scaling::row ? "row" : scaling == Fp8Scaling::delayed ? "delayed" : "tensor";
}

using Facts = std::vector<std::pair<std::string, std::string>>;  // key and JSON value

// What decides the numbers of a step, and may be other when a run is continued.
Facts numeric_facts(Model& model) {
  Facts facts = {{"seed", json_scalar(model.run().context(model.device().stream()).seed)},
                 {kComputes, json_scalar(name(compute_dtype(model)))}};
  if (const auto lora = lora_settings(model.inspect().parameters())) {
    facts.emplace_back("lora.alpha", json_scalar(lora->options.alpha));
    facts.emplace_back("lora.dropout", json_scalar(lora->options.dropout));
    facts.emplace_back("lora.rank_stabilized", json_scalar(lora->options.rank_stabilized));
  }
  if (const Fp8Products* const fp8 = first_fp8(model.root())) {
    facts.emplace_back("fp8.scaling", json_scalar(word_of(fp8->scaling())));
    if (fp8->scaling() == Fp8Scaling::delayed)
      facts.emplace_back("fp8.history", json_scalar(static_cast<int64_t>(fp8->history())));
  }
  return facts;
}

}  // namespace

std::string model_record(Model& model, const SavedSet& set) {
  JsonObject object(0);
  object.add("dtype", json_scalar(name(dtype_of(set))));
  int64_t count = 0;
  for (const auto& [tensor, spec] : set.tensors) count += spec.shape.count();
  object.add("parameters", json_scalar(count));
  for (const auto& [key, value] : numeric_facts(model)) object.add(key, value);
  if (trains_adapters_alone(model)) object.add(kBase, json_scalar(base_text(model)));
  return std::move(object).close();
}

std::optional<std::string> stored_base(const std::string& record) {
  const JsonScalars stored = read_json_scalars(record, kRecord);
  const JsonValue* const base = find_scalar(stored, kBase);
  if (base == nullptr || base->kind != JsonValue::Kind::text) return std::nullopt;
  return base->text;
}

std::string base_text(Model& model) { return hex(model.origin().base_hash.value_or(0)); }

void compare_model(const std::string& record, const CheckpointPart& part,
                   std::vector<std::string>& differences) {
  const JsonScalars there = read_json_scalars(record, kRecord);
  JsonObject object(0);
  for (const auto& [key, value] : numeric_facts(*part.model)) object.add(key, value);
  const JsonScalars now = read_json_scalars(std::move(object).close(), "the model");
  const auto differs = [&](const std::string& key, const std::string& before, const std::string& after) {
    differences.push_back(text(part.name, part.name.empty() ? "" : ": ", key, ": ", before,
                               " in the checkpoint, ", after, " now"));
  };
  // An earlier release knew the seed alone.
  const bool knows_all = find_scalar(there, kComputes) != nullptr;
  for (const auto& [key, value] : now) {
    const JsonValue* const before = find_scalar(there, key.first);
    if (before == nullptr && knows_all)
      differs(key.first, "nothing", value.display());
    else if (before != nullptr && before->display() != value.display())
      differs(key.first, before->display(), value.display());
  }
  for (const auto& [key, value] : there) {
    const bool compared = key.first.starts_with("lora.") || key.first.starts_with("fp8.");
    if (compared && find_scalar(now, key.first) == nullptr) differs(key.first, value.display(), "nothing");
  }
  const JsonValue* const scaling = find_scalar(now, "fp8.scaling");
  if (scaling != nullptr && scaling->text == "delayed")
    differences.push_back(text(part.name, part.name.empty() ? "" : ": ",
                               "fp8: the histories of delayed scales begin anew, so the numbers are not "
                               "those of an undisturbed run"));
}

}  // namespace gangway

#include "checkpoint/run/optimizer_record.h"

#include <charconv>
#include <cmath>

#include "base/error.h"
#include "base/json.h"
#include "base/json_scalars.h"

namespace gangway {
namespace {

constexpr char kDynamic[] = "dynamic_loss_scale", kFixed[] = "loss_scale";

// Returns the JSON text of a fact's value: a number, true or false, else a text.
std::string as_json(const std::string& value) {
  if (value == "on") return "true";
  if (value == "off") return "false";
  double number = 0;
  const char* const end = value.data() + value.size();
  const auto [read, failed] = std::from_chars(value.data(), end, number);
  return failed == std::errc() && read == end && std::isfinite(number) ? value : json_scalar(value);
}

// The JSON object of all that the options decide. A line of the signature is "name value".
std::string hyperparameters_json(const Optimizer& optimizer) {
  JsonObject object(0);
  CallSignature signature;
  signature.add(optimizer.fixed_signature());
  signature.add(kDynamic, optimizer.loss_scale().dynamic());
  signature.add(kFixed, optimizer.options().loss_scale.fixed);
  signature.add("loss_scale_interval", optimizer.options().loss_scale.interval);
  const std::string& all = signature.text();
  for (size_t at = 0; at < all.size();) {
    const size_t end = std::min(all.find('\n', at), all.size());
    const std::string line = all.substr(at, end - at);
    const size_t space = line.find(' ');
    if (space != std::string::npos) object.add(line.substr(0, space), as_json(line.substr(space + 1)));
    at = end + 1;
  }
  return std::move(object).close();
}

bool same(const JsonValue& a, const JsonValue& b) {
  return a.is_number() && b.is_number() ? a.real == b.real : a.display() == b.display();
}

std::string of_part(const std::string& name) { return name.empty() ? "" : name + ": "; }

// Returns whether a loss scale follows from the same option there and now: both dynamic, or of the same fixed
// value, which set() may have changed since.
bool same_loss_scale(const JsonScalars& there, const JsonScalars& now) {
  const auto equal = [&](const char* name) {
    const auto a = there.find({name, ""}), b = now.find({name, ""});
    return a != there.end() && b != now.end() && same(a->second, b->second);
  };
  return equal(kDynamic) && equal(kFixed);
}

}  // namespace

StoredOptimizer record_of(const Optimizer& optimizer) {
  StoredOptimizer record;
  record.kind = optimizer.kind();
  record.steps = optimizer.steps();
  record.lr = optimizer.base_lr();
  record.configured_lr = optimizer.configured_lr();
  record.loss_scale = optimizer.loss_scale().value();
  record.finite_steps = optimizer.loss_scale().finite_steps();
  for (size_t i = 0; i < optimizer.parameters().size(); ++i)
    if (optimizer.first_step(i) > 0)
      record.first_steps[optimizer.parameters()[i].name] = optimizer.first_step(i);
  record.hyperparameters = hyperparameters_json(optimizer);
  return record;
}

std::string other_kind(const StoredOptimizer& stored, const Optimizer& optimizer, const std::string& name) {
  if (stored.kind == optimizer.kind()) return "";
  return text(of_part(name), "the checkpoint has the states of optimizer ", stored.kind, ", this one is ",
              optimizer.kind(), ", which begins anew where a restore is not strict");
}

void resume(const StoredOptimizer& stored, Optimizer& optimizer, const std::string& name,
            std::vector<std::string>& differences) {
  const auto differs = [&](const std::string& what, const auto& there, const auto& now) {
    differences.push_back(text(of_part(name), what, ": ", there, " in the checkpoint, ", now, " now"));
  };
  optimizer.set_steps(stored.steps);
  for (size_t i = 0; i < optimizer.parameters().size(); ++i) {
    const auto at = stored.first_steps.find(optimizer.parameters()[i].name);
    optimizer.set_first_step(i, at != stored.first_steps.end() ? at->second : 0);
  }

  if (stored.configured_lr == optimizer.configured_lr())
    optimizer.set_lr(stored.lr);
  else
    differs("lr", stored.lr, optimizer.base_lr());

  const JsonScalars there = read_json_scalars(stored.hyperparameters, "hyperparameters in the checkpoint");
  const JsonScalars now = read_json_scalars(hyperparameters_json(optimizer), "hyperparameters");
  LossScale& scale = optimizer.loss_scale();
  if (same_loss_scale(there, now)) scale.restore(stored.loss_scale, stored.finite_steps);
  for (const auto& [key, value] : there) {
    const auto at = now.find(key);
    if (at == now.end())
      differs(key.first, value.display(), "nothing");
    else if (!same(value, at->second))
      differs(key.first, value.display(), at->second.display());
  }
  for (const auto& [key, value] : now)
    if (there.count(key) == 0) differs(key.first, "nothing", value.display());
}

}  // namespace gangway

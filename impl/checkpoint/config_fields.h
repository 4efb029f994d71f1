// Access to the keys of a config.json or an adapter_config.json with bounds, so that a wrong file cannot make
// later code allocate huge memory. Errors are CORRUPT, or NOT_SUPPORTED by unsupported(), and name the file,
// the key and its value.
//
// Thread rule: values.
#pragma once

#include <cmath>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/json_scalars.h"
#include "base/line.h"

namespace gangway {

// The keys of one object of the file: the outer one (""), rope_scaling or rope_parameters, or (`inside`) an
// object in such a one.
class Fields {
 public:
  Fields(const JsonScalars& all, std::string file, std::string object = "", std::string inside = "")
      : all_(all), file_(std::move(file)), object_(std::move(object)), inside_(std::move(inside)) {}

  // Returns null if the key is missing or its value is null.
  const JsonValue* find(const char* name) const {
    const JsonValue* value = at(name);
    return value == nullptr || value->kind == JsonValue::Kind::null ? nullptr : value;
  }
  bool is_null(const char* name) const {
    const JsonValue* value = at(name);
    return value != nullptr && value->kind == JsonValue::Kind::null;
  }
  void refuse_null(const char* name) const {
    if (is_null(name)) corrupt(name, *at(name), "with which the class of transformers cannot work");
  }
  int64_t size(const char* name, int64_t least, int64_t most = INT32_MAX) const {
    return whole(name, required(name), least, most);
  }
  double number(const char* name) const { return real(name, required(name)); }
  double number_or(const char* name, double fallback) const {
    const JsonValue* value = find(name);
    return value == nullptr ? fallback : real(name, *value);
  }
  bool flag_or(const char* name, bool fallback) const {
    const JsonValue* value = find(name);
    if (value == nullptr) return fallback;
    if (value->kind != JsonValue::Kind::boolean) corrupt(name, *value, "not true or false");
    return value->boolean;
  }
  std::string text_or(const char* name, const char* fallback) const {
    const JsonValue* value = find(name);
    if (value == nullptr) return fallback;
    if (value->kind != JsonValue::Kind::text) corrupt(name, *value, "not a text");
    return value->text;
  }
  const JsonValue& required(const char* name) const {
    const JsonValue* value = find(name);
    if (value == nullptr) fail(Code::corrupt, where(name), " is missing");
    return *value;
  }
  // Refuses each key of the object for which is_known(key, value) is false, unless its value is null. A key
  // of an object inside the object is "inside.key".
  template <typename IsKnown>
  void refuse_unknown(IsKnown&& is_known) const {
    for (const auto& [path, value] : all_) {
      const auto& [outer, key] = path;
      if (object_.empty() ? !key.empty() : outer != object_ || key.empty()) continue;
      const std::string& own = object_.empty() ? outer : key;
      if (value.kind != JsonValue::Kind::null && !is_known(own, value))
        unsupported(printable(own).c_str(), value,
                    "this library does not know the key, which may change what the model computes");
    }
  }
  [[noreturn]] void corrupt(const char* name, const JsonValue& value, const std::string& why) const {
    fail(Code::corrupt, where(name), " is ", value.display(), ", ", why);
  }
  [[noreturn]] void unsupported(const char* name, const JsonValue& value, const std::string& known) const {
    fail(Code::not_supported, where(name), " is ", value.display(), "; ", known);
  }

 private:
  std::string prefix() const { return inside_.empty() ? "" : inside_ + "."; }
  const JsonValue* at(const char* name) const {
    const auto found =
        all_.find(object_.empty() ? std::pair<std::string, std::string>(name, "")
                                  : std::pair<std::string, std::string>(object_, prefix() + name));
    return found == all_.end() ? nullptr : &found->second;
  }
  std::string where(const char* name) const {
    return file_ + ": " + (object_.empty() ? "" : object_ + "." + prefix()) + name;
  }
  int64_t whole(const char* name, const JsonValue& value, int64_t least, int64_t most) const {
    if (value.kind != JsonValue::Kind::integer) corrupt(name, value, "not a whole number");
    if (value.integer < least || value.integer > most)
      corrupt(name, value, text("outside of ", least, " to ", most));
    return value.integer;
  }
  double real(const char* name, const JsonValue& value) const {
    if (!value.is_number() || !std::isfinite(value.real)) corrupt(name, value, "not a finite number");
    return value.real;
  }

  const JsonScalars& all_;
  std::string file_, object_, inside_;
};

}  // namespace gangway

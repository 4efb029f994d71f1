// A JSON object of a stranger as its scalars, two levels deep: what config.json and an index need. No document is built, so
// that memory is that of the result, and nesting takes none.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

namespace gangway {

struct JsonValue {
  enum class Kind { null, boolean, integer, real, text, list, object };
  Kind kind = Kind::null;
  bool boolean = false;
  int64_t integer = 0;
  double real = 0;            // of an integer, too
  std::string text;           // of a text; of a number as it stands
  std::string shown() const;  // for an error
};

// {"a": 1, "b": {"c": 2}} has ("a", ""), ("b", ""), which is an object, and ("b", "c"). Lists are there without their
// elements.
using JsonScalars = std::map<std::pair<std::string, std::string>, JsonValue>;

// CORRUPT, beginning with `name`: no JSON object, nested over 8 deep, a key stands twice.
JsonScalars read_json_scalars(std::string_view json, const std::string& name);

}  // namespace gangway

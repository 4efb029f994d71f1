// Reads the scalars of an untrusted JSON object, three levels deep, as most files of the library need them. It
// builds no document: it takes no memory besides the result, and none for deeper levels.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gangway {

struct JsonValue {
  enum class Kind { null, boolean, integer, real, text, list, object };
  Kind kind = Kind::null;
  bool boolean = false;
  int64_t integer = 0;
  double real = 0;   // value of a real number or of an integer
  std::string text;  // of a text, its contents; of a number, its digits as written
  // Of a list: the number of its elements, those that are texts, and those that are numbers (the first
  // kMostNumbers of them).
  size_t count = 0;
  std::vector<std::string> texts = {};
  std::vector<double> numbers = {};
  static constexpr size_t kMostNumbers = 4096;
  bool is_number() const { return kind == Kind::integer || kind == Kind::real; }
  std::string display() const;  // the value in short, for an error message
};

// Values by key and, on the deeper levels, subkey. {"a": 1, "b": {"c": 2, "d": {"e": 3}}} has the entries
// ("a", ""), ("b", "") of kind object, ("b", "c"), ("b", "d") of kind object, and ("b", "d.e"). A list has an
// entry of kind list; its elements have none of their own.
using JsonScalars = std::map<std::pair<std::string, std::string>, JsonValue>;

// CORRUPT, with a text that begins with `name`: `json` is not a JSON object, is nested more than 8 deep, or
// has a duplicate key.
JsonScalars read_json_scalars(std::string_view json, const std::string& name);
// Returns nothing where read_json_scalars throws CORRUPT.
std::optional<JsonScalars> find_json_scalars(std::string_view json);
// Returns null if there is no such value.
const JsonValue* find_scalar(const JsonScalars& scalars, const std::string& key,
                             const std::string& subkey = "");

// The members of a JSON object in their order: the key, and the value as it stands in the text.
using JsonMembers = std::vector<std::pair<std::string, std::string_view>>;

// CORRUPT, with a text that begins with `name`: `json` is not a JSON object, is nested more than 64 deep, or
// has a key twice.
JsonMembers json_members(std::string_view json, const std::string& name);
// Returns the value of a key as it stands in the text; null: there is no such key.
const std::string_view* find_member(const JsonMembers& members, std::string_view key);

}  // namespace gangway

// Reads TOML into plain values, so that one source only parses the TOML library.
//
// Thread rule: values.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace gangway::train {

// A fault of run.toml or of the command line: one line for the user.
class SettingsError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct TomlValue {
  enum class Type : uint8_t { integer, number, text, flag, array, table, other };
  Type type = Type::text;
  std::string text;                                       // of a scalar
  std::vector<TomlValue> items;                           // of an array
  std::vector<std::pair<std::string, TomlValue>> fields;  // of a table
  std::string origin;                                     // "run.toml:12", or "the command line"
};

const char* name_of(TomlValue::Type type);  // "a whole number", "a text", ...

// Returns the values of a file by their whole keys, such as "train.steps", in the order of the file. A table
// inside an array is one value. SettingsError: the file is missing, or is not TOML.
std::vector<std::pair<std::string, TomlValue>> read_toml(const std::string& path);

// Reads a value of the command line: as TOML has it, else the text itself.
TomlValue parse_value(const std::string& text);

}  // namespace gangway::train

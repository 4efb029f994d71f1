// The keys of run.toml: one table has the name, type, default, range and description of each. Reading,
// checks, --help and the list of settings that a run prints are derived from it.
//
// Thread rule: values.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "tools/train/toml_file.h"

namespace gangway::train {

enum class Kind : uint8_t {
  integer,  // range: "1.." or "0..8"
  number,   // range: an interval, "[0, inf)"
  text,
  flag,
  choice,  // range: the words, separated by '|'
  degree,  // a number of ranks from 1, or "auto": what the other axes leave
  sources  // a path, a list of paths, or a list of {path, weight, format}
};

struct Key {
  const char* name;
  Kind kind;
  const char* standard;  // the default; null: the key must be given
  const char* range;
  const char* doc;
};

std::span<const Key> keys();

struct DataPath {
  std::string path, format;
  double weight = 1;
};

class Settings {
 public:
  // Reads a file and the overrides of the command line ("train.steps", "2000"). Keys of [optimizer] that are
  // not in the table are options of that optimizer; the library checks them. SettingsError names the key,
  // the line and the range.
  static Settings read(const std::string& path,
                       const std::vector<std::pair<std::string, std::string>>& overrides);

  int64_t integer(const char* key) const;
  double number(const char* key) const;
  bool flag(const char* key) const;
  const std::string& text(const char* key) const;
  int degree(const char* key) const;  // -1: "auto"
  std::vector<DataPath> sources(const char* key) const;
  bool given(const char* key) const;  // whether the file or the command line has it

  // Options of the optimizer: name and value, in the order of names.
  const std::map<std::string, TomlValue>& optimizer_options() const { return optimizer_; }
  // Where a key's value comes from, for messages of later checks.
  std::string origin(const std::string& key) const;

 private:
  void set(const std::string& name, const TomlValue& value);

  std::map<std::string, TomlValue> values_;  // of the table's keys
  std::map<std::string, TomlValue> optimizer_;
};

// The keys that decide the numbers of a run and that a checkpoint's model, optimizer and data do not know, a
// line "key = value" for each: a checkpoint keeps them as a text.
std::string numeric_settings(const Settings& settings, int ranks);
// Returns a line for each of them that differs: "train.global_batch: 4 in the checkpoint, 8 now".
std::vector<std::string> setting_differences(const std::string& before, const std::string& now);

// The text of --help: every key with its default and range.
std::string describe_keys();

}  // namespace gangway::train

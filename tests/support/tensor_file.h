// A safetensors file of reference values in tests/data, read without the library.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace gangway::test {

struct TensorFile {
  struct Entry {
    std::vector<int64_t> dims;
    std::vector<double> values;  // of f64, f32, i64 (token ids are small) or u8
  };

  // Throws std::runtime_error if tests/data has no file `name`.safetensors.
  explicit TensorFile(const std::string& name);

  const Entry& at(const std::string& name) const { return entries.at(name); }
  const std::vector<double>& values(const std::string& name) const { return at(name).values; }

  std::string settings;  // the metadata entry "config", which is JSON; empty if there is none
  std::map<std::string, Entry> entries;
};

}  // namespace gangway::test

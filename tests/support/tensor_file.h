// A safetensors file of reference values in tests/data, read without the library.
#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "data/place.h"

namespace gangway::test {

class TensorFile {
 public:
  struct Entry {
    std::vector<int64_t> dims;
    std::vector<double> values;  // i64 as f64: token ids are small
  };

  explicit TensorFile(const std::string& name) {
    std::ifstream file(test_data(name + ".safetensors"), std::ios::binary);
    if (!file) throw std::runtime_error("cannot open " + name);
    uint64_t header_bytes = 0;
    file.read(reinterpret_cast<char*>(&header_bytes), sizeof header_bytes);
    std::string header(header_bytes, '\0');
    file.read(header.data(), static_cast<std::streamsize>(header_bytes));
    const std::string data((std::istreambuf_iterator<char>(file)), {});
    const nlohmann::json json = nlohmann::json::parse(header);
    for (const auto& [key, value] : json.items())
      if (key != "__metadata__") entries[key] = entry_of(value, data);
    settings = nlohmann::json::parse(json.at("__metadata__").at("config").get<std::string>());
  }

  const Entry& at(const std::string& name) const { return entries.at(name); }
  const std::vector<double>& values(const std::string& name) const { return at(name).values; }

  nlohmann::json settings;  // the metadata entry "config"
  std::map<std::string, Entry> entries;

 private:
  static Entry entry_of(const nlohmann::json& described, const std::string& data) {
    Entry entry;
    entry.dims = described.at("shape").get<std::vector<int64_t>>();
    const auto range = described.at("data_offsets").get<std::vector<size_t>>();
    const bool integers = described.at("dtype") == "I64";
    entry.values.resize((range[1] - range[0]) / 8);
    for (size_t i = 0; i < entry.values.size(); ++i) {
      int64_t bits;
      std::memcpy(&bits, data.data() + range[0] + 8 * i, 8);
      if (integers)
        entry.values[i] = static_cast<double>(bits);
      else
        std::memcpy(&entry.values[i], &bits, 8);
    }
    return entry;
  }
};

}  // namespace gangway::test

#include "support/tensor_file.h"

#include <cstring>
#include <fstream>
#include <stdexcept>

#include <nlohmann/json.hpp>

#include "data/data_path.h"

namespace gangway::test {

using nlohmann::json;

namespace {

TensorFile::Entry entry_of(const json& described, const std::string& data) {
  TensorFile::Entry entry;
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

}  // namespace

TensorFile::TensorFile(const std::string& name) {
  std::ifstream file(test_data(name + ".safetensors"), std::ios::binary);
  if (!file) throw std::runtime_error("cannot open " + name);
  uint64_t header_bytes = 0;
  file.read(reinterpret_cast<char*>(&header_bytes), sizeof header_bytes);
  std::string header(header_bytes, '\0');
  file.read(header.data(), static_cast<std::streamsize>(header_bytes));
  const std::string data((std::istreambuf_iterator<char>(file)), {});
  const json described = json::parse(header);
  for (const auto& [key, value] : described.items())
    if (key != "__metadata__") entries[key] = entry_of(value, data);
  if (described.contains("__metadata__")) settings = described["__metadata__"].value("config", "");
}

}  // namespace gangway::test

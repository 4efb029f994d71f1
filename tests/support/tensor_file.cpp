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
  const std::string dtype = described.at("dtype");
  const size_t width = dtype == "U8" ? 1 : dtype == "F32" ? 4 : 8;
  entry.values.resize((range[1] - range[0]) / width);
  for (size_t i = 0; i < entry.values.size(); ++i) {
    const char* const from = data.data() + range[0] + width * i;
    const auto as = [&](auto value) {
      std::memcpy(&value, from, sizeof value);
      return static_cast<double>(value);
    };
    entry.values[i] = dtype == "U8"    ? as(uint8_t{})
                      : dtype == "F32" ? as(float{})
                      : dtype == "I64" ? as(int64_t{})
                                       : as(double{});
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

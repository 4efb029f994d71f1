// Parses and writes the JSON of a safetensors header. The parser accepts exactly the grammar of the format;
// for anything else it throws CORRUPT and names the field. It does not check the names and numbers
// themselves.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace gangway {

struct RawTensor {
  std::string name, dtype;
  std::vector<uint64_t> shape;
  uint64_t first = 0, last = 0;
};

struct RawHeader {
  std::map<std::string, std::string> metadata;
  std::vector<RawTensor> tensors;  // in the order of the text; a name may occur twice
};

RawHeader read_header_json(std::string_view json);
std::string write_header_json(const RawHeader& header);  // INVALID_ARGUMENT: text that is not UTF-8

}  // namespace gangway

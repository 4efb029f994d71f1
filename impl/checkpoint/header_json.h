// The JSON of a safetensors header as it stands: names and numbers, not yet checked against anything. Exactly
// the format's grammar is taken; anything else is CORRUPT with the field.
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
  std::vector<RawTensor> tensors;  // in the order of the text; a name may stand there twice
};

RawHeader read_header_json(std::string_view json);
std::string write_header_json(const RawHeader& header);  // INVALID_ARGUMENT: text that is not UTF-8

// Hostile text for one line of an error: quoted, control characters and bytes over 126 as \xNN, at most 80
// bytes.
std::string printable(std::string_view text);

}  // namespace gangway

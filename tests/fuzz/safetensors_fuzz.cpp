// libFuzzer: any bytes as the header of a safetensors file. The first eight say how large its data section
// is. What is taken must hold together: offsets inside, sizes that fit, and the same again after writing and
// reading.
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/error.h"
#include "checkpoint/safetensors.h"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace gangway;
  uint64_t data_bytes = 0;
  if (size < sizeof data_bytes) return 0;
  std::memcpy(&data_bytes, data, sizeof data_bytes);
  const std::string_view json(reinterpret_cast<const char*>(data) + 8, size - 8);
  SafetensorsHeader header;
  try {
    header = parse_safetensors_header(json, data_bytes);
  } catch (const Error& error) {
    require(error.code() == Code::corrupt || error.code() == Code::not_supported);
    require(error.message().find('\n') == std::string::npos && error.message().size() < 1000);
    return 0;
  }
  for (const auto& [name, tensor] : header.tensors) {
    require(tensor.first <= tensor.last && tensor.last <= data_bytes);
    if (!tensor.unreadable.empty()) return 0;
    require(static_cast<uint64_t>(tensor.shape.count()) * item_bytes(tensor.dtype) ==
            tensor.last - tensor.first);
  }
  const std::string written = make_safetensors_header(header);
  const SafetensorsHeader again = parse_safetensors_header(std::string_view(written).substr(8), data_bytes);
  require(again.metadata == header.metadata && again.tensors.size() == header.tensors.size());
  return 0;
}

// libFuzzer: any bytes as a config.json. What is taken lies in its bounds and is the same again after writing and reading.
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "checkpoint/config_json.h"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace gangway;
  const std::string origin(reinterpret_cast<const char*>(data), size);
  DecoderOptions config;
  try {
    config = parse_config_json(origin, "config.json");
  } catch (const Error& error) {
    require(error.code() == Code::corrupt || error.code() == Code::not_supported);
    require(error.message().find('\n') == std::string::npos && error.message().size() < 1000);
    return 0;
  }
  require(config.layers >= 1 && config.layers <= 10'000);
  for (const int64_t number :
       {config.vocab, config.dim, config.heads, config.kv_heads, config.ffn, config.max_positions})
    require(number >= 1 && number <= INT32_MAX);
  if (config.out_bias && !config.qkv_bias) return 0;  // it cannot be saved
  for (const std::string& kept : {std::string(), origin})
    check_same_function(parse_config_json(config_json(config, DType::f32, kept), "again"), config, "again");
  return 0;
}

// libFuzzer: any bytes before the hash of a state.json. What is taken is the same again after writing and
// reading, and its files stay in the folder.
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "checkpoint/run/state_text.h"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace gangway;
  std::string json(reinterpret_cast<const char*>(data), size);
  json += last_lines(json);
  CheckpointState state;
  try {
    state = parse_state(json, "state.json");
  } catch (const Error& error) {
    require(error.code() == Code::corrupt || error.code() == Code::not_supported);
    require(error.message().find('\n') == std::string::npos && error.message().size() < 1000);
    return 0;
  }
  require(to_json(state) == json);
  for (const StoredFile& file : state.files)
    require(file.name.front() != '/' && ("/" + file.name + "/").find("/../") == std::string::npos);
  return 0;
}

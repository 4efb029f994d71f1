#include "tools/train/sample.h"

#include <cstdio>
#include <vector>

#include "tools/train/status.h"
#include "tools/train/text_file.h"

namespace gangway::train {

void write_sample(const Settings& s, gw_module* model, bool talks) {
  const std::string& prompt = s.text("sample.prompt");
  if (prompt.empty()) return;
  std::vector<int64_t> context;
  for (const char byte : prompt) context.push_back(static_cast<unsigned char>(byte));
  std::vector<int64_t> tokens(static_cast<size_t>(s.integer("sample.tokens")));
  auto options = fresh(gw_generate_options_init);
  options.token_count = s.integer("sample.tokens");
  options.temperature = s.number("sample.temperature");
  options.top_k = s.integer("sample.top_k");
  options.seed = static_cast<uint64_t>(s.integer("train.seed"));
  size_t count = 0;
  const gw_status status = gw_generate(model, context.data(), context.size(), &options, nullptr,
                                       tokens.data(), tokens.size(), &count);
  // The run is over and saved, so that a mesh which cannot make the sample is no failure of it.
  if (status == GW_E_NOT_SUPPORTED || status == GW_E_INVALID_ARGUMENT) {
    if (talks) std::printf("no sample: %s\n", gw_last_error_text());
    return;
  }
  check(status);
  if (!talks) return;
  std::string text = prompt;
  // Ids beyond a byte end documents (gw-tokens).
  for (size_t i = 0; i < count; ++i)
    text += tokens[i] < 256 ? std::string(1, static_cast<char>(tokens[i])) : "\n\n";
  std::printf("sample: %s\n", text.c_str());
  const std::string path = s.text("checkpoint.folder") + "/sample.txt";
  if (!write_text_file(path, text)) std::printf("%s could not be written\n", path.c_str());
}

}  // namespace gangway::train

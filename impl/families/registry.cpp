#include <algorithm>

#include "base/error.h"
#include "families/family.h"

namespace gangway {

Family llama_family();
Family qwen2_family();
Family mistral_family();
Family qwen3_family();
Family gemma_family();
Family gemma2_family();
Family gemma3_family();
Family olmo2_family();
Family gpt2_family();
Family phi3_family();

const std::vector<Family>& families() {
  static const std::vector<Family> all = {
      llama_family(),  qwen2_family(),  mistral_family(), qwen3_family(), gemma_family(),
      gemma2_family(), gemma3_family(), olmo2_family(),   gpt2_family(),  phi3_family(),
  };
  return all;
}

const Family* find_family(const std::string& name) {
  const auto found =
      std::find_if(families().begin(), families().end(), [&](const Family& f) { return f.name == name; });
  return found == families().end() ? nullptr : &*found;
}

const Family& family_named(const std::string& name) {
  if (const Family* family = find_family(name)) return *family;
  fail(Code::not_supported, "model family \"", name, "\" is unknown; this library has ", family_names());
}

std::string family_names() {
  std::string all;
  for (const Family& family : families()) {
    const bool last = &family == &families().back();
    all += (all.empty() ? "" : last ? " and " : ", ") + family.name;
  }
  return all;
}

}  // namespace gangway

#include "tools/rank_count.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <stdexcept>

#include "base/cores.h"

namespace gangway::tools {
namespace {

bool is_number(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

// Returns the number of GPUs that a rank could see: those of CUDA_VISIBLE_DEVICES, else the host's.
int gpus() {
  int count = 0;
  if (const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES")) {
    std::istringstream in(visible);
    for (std::string one; std::getline(in, one, ',') && !one.empty() && one.front() != '-';) ++count;
    return count;
  }
  constexpr std::string_view kName = "nvidia";
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator("/dev", none)) {
    const std::string name = entry.path().filename();
    if (name.starts_with(kName) && is_number(name.substr(kName.size()))) ++count;
  }
  return count;
}

}  // namespace

int rank_count(const std::string& word) {
  int count = 0;
  if (word == "auto" || word == "gpu") count = gpus();
  if (word == "gpu" && count == 0)
    throw std::invalid_argument("the number of ranks is \"gpu\", but this host has no NVIDIA GPU");
  if (word == "cpu" || (word == "auto" && count == 0)) count = usable_cores();
  if (count > 0) return std::min(count, kMostRanks);
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), count);
  if (error != std::errc() || end != word.data() + word.size() || count < 1 || count > kMostRanks)
    throw std::invalid_argument("the number of ranks is \"" + word + "\", not 1 to " +
                                std::to_string(kMostRanks) + ", auto, cpu or gpu");
  return count;
}

}  // namespace gangway::tools

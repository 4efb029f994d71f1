#include "tools/train/step_text.h"

#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "tools/train/handles.h"
#include "tools/train/status.h"

namespace gangway::train {
namespace {

constexpr struct {
  const char* name;
  double gw_step_result::*member;
} kNumbers[] = {{"loss", &gw_step_result::loss},
                {"grad_norm", &gw_step_result::grad_norm},
                {"tokens_per_second", &gw_step_result::tokens_per_second},
                {"seconds", &gw_step_result::seconds},
                {"wait_seconds", &gw_step_result::wait_seconds},
                {"lr", &gw_step_result::lr},
                {"loss_scale", &gw_step_result::loss_scale}};

constexpr struct {
  const char* name;
  int64_t gw_step_result::*member;
} kCounts[] = {{"weight", &gw_step_result::weight},
               {"step", &gw_step_result::step},
               {"tokens", &gw_step_result::tokens}};

std::string value_of(std::istringstream& words, const char* name) {
  std::string found, value;
  if (!(words >> found >> value) || found != name)
    throw Failed(Exit::data, std::string("the checkpoint's last step has no number \"") + name + "\"");
  return value;
}

}  // namespace

std::string to_text(const gw_step_result& result) {
  std::string text;
  for (const auto& [name, member] : kNumbers) {
    char value[40];
    std::snprintf(value, sizeof value, "%a", result.*member);
    text += std::string(name) + " " + value + "\n";
  }
  for (const auto& [name, member] : kCounts)
    text += std::string(name) + " " + std::to_string(result.*member) + "\n";
  return text + "skip_reason " + std::to_string(result.skip_reason) + "\n";
}

gw_step_result step_result_of(const std::string& text) {
  auto result = fresh(gw_step_result_init);
  std::istringstream words(text);
  for (const auto& [name, member] : kNumbers)
    result.*member = std::strtod(value_of(words, name).c_str(), nullptr);
  for (const auto& [name, member] : kCounts)
    result.*member = std::strtoll(value_of(words, name).c_str(), nullptr, 10);
  result.skip_reason =
      static_cast<gw_skip_reason>(std::strtol(value_of(words, "skip_reason").c_str(), nullptr, 10));
  result.skipped = result.skip_reason != GW_SKIP_NONE ? 1 : 0;
  return result;
}

}  // namespace gangway::train

#include "patterns.h"

namespace gangway::capi {
namespace {

std::string trimmed(const std::string& text) {
  constexpr const char* kSpace = " \t\r\n";
  const size_t first = text.find_first_not_of(kSpace);
  return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

}  // namespace

std::vector<std::string> patterns_of(const char* given, const char* name) {
  std::vector<std::string> patterns;
  if (given == nullptr) return patterns;
  std::string rest = given;
  while (true) {
    const size_t comma = rest.find(',');
    patterns.push_back(trimmed(rest.substr(0, comma)));
    if (patterns.back().empty())
      fail(Code::invalid_argument, name, ".patterns is \"", given, "\", in which a pattern is empty");
    if (comma == std::string::npos) return patterns;
    rest = rest.substr(comma + 1);
  }
}

ModulePtr whole_description(gw_module* model, const char* what) {
  gw_module& m = required(model, "model");
  if (m.model)
    fail(Code::invalid_state, "the model is wrapped already; it gets ", what,
         " before gw_parallelize and the calls that wrap a model");
  if (!m.inside.expired())
    fail(Code::invalid_state, "the module is part of another one; the whole model gets ", what);
  return m.module;
}

}  // namespace gangway::capi

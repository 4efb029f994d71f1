#include "tools/train/norms.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "tools/train/handles.h"
#include "tools/train/status.h"
#include "tools/train/text_file.h"

namespace gangway::train {
namespace {

std::vector<std::string> names_of(gw_module* model) {
  size_t count = 0;
  check(gw_module_parameter_count(model, &count));
  std::vector<std::string> names;
  for (size_t i = 0; i < count; ++i) {
    gw_parameter* parameter = nullptr;
    check(gw_module_parameter(model, i, &parameter));
    auto info = fresh(gw_parameter_info_init);
    const gw_status status = gw_parameter_describe(parameter, &info);
    if (status == GW_OK) names.emplace_back(info.name);
    gw_parameter_release(parameter);
    check(status);
  }
  return names;
}

// A number as JSON has it: NaN and infinity are texts there.
std::string number(double value) {
  char out[40];
  std::snprintf(out, sizeof out, std::isfinite(value) ? "%.17g" : "\"%g\"", value);
  return out;
}

}  // namespace

Norms::Norms(const Settings& s, gw_gang* root, gw_module* model) : model_(model) {
  if (s.integer("metrics.norms_every") == 0 || gw_gang_rank(root) != 0) return;
  path_ = s.text("checkpoint.folder") + "/norms.jsonl";
  names_ = names_of(model);
}

std::string Norms::write(int64_t step, double loss) {
  if (path_.empty()) return {};
  std::vector<double> norms(names_.size());
  size_t count = 0;
  check(gw_module_gradient_norms(model_, norms.data(), norms.size(), &count));
  std::string line = "{\"step\":" + std::to_string(step) + ",\"loss\":" + number(loss) + ",\"norms\":{";
  for (size_t i = 0; i < names_.size(); ++i)
    line += (i == 0 ? "\"" : ",\"") + names_[i] + "\":" + number(norms[i]);
  line += "}}\n";
  const int file =
      open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0666);
  const bool written =
      file >= 0 && ::write(file, line.data(), line.size()) == static_cast<ssize_t>(line.size());
  const std::string why = written ? "" : path_ + ": " + std::strerror(errno);
  if (file >= 0) close(file);
  return why;
}

bool Norms::restore(int64_t step) {
  if (path_.empty()) return true;
  std::ifstream in(path_, std::ios::binary);
  constexpr char kStart[] = "{\"step\":";
  std::string kept, line;
  while (std::getline(in, line) && !in.eof())
    if (line.rfind(kStart, 0) == 0 && std::strtoll(line.c_str() + std::strlen(kStart), nullptr, 10) <= step)
      kept += line + "\n";
  return !in.is_open() || write_text_file(path_, kept);
}

}  // namespace gangway::train

#include "base/process.h"

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

namespace gangway {

namespace {

// Its own number need not be that of /proc, which may be another name space's.
std::ifstream open_about(pid_t pid, const char* what) {
  return std::ifstream("/proc/" + (pid == getpid() ? "self" : std::to_string(pid)) + what);
}

}  // namespace

std::optional<int64_t> process_stat(pid_t pid, int number) {
  std::ifstream file = open_about(pid, "/stat");
  std::string stat;
  std::getline(file, stat, '\0');
  size_t at = stat.rfind(')');  // field 2 is a name, which may hold anything
  for (int field = 2; field < number && at != std::string::npos; ++field) at = stat.find(' ', at + 1);
  if (at == std::string::npos) return std::nullopt;
  return std::strtoll(stat.c_str() + at, nullptr, 10);
}

bool dumps_core(pid_t pid) {
  std::ifstream file = open_about(pid, "/status");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("CoreDumping:")) return line.ends_with('1');
  return false;
}

}  // namespace gangway

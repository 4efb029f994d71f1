#include "tools/rank_command.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace gangway::tools {
namespace {

std::string interpreter(const RankCommandOptions& options) {
  if (!options.python.empty()) return options.python;
  if (const char* const environment = std::getenv("VIRTUAL_ENV")) {
    const std::string own = std::string(environment) + "/bin/python3";
    if (access(own.c_str(), X_OK) == 0) return own;
  }
  return "python3";
}

}  // namespace

std::vector<std::string> rank_command(std::vector<std::string> words, const RankCommandOptions& options) {
  const std::string& program = words.front();
  const bool is_script = program.ends_with(".py") && !options.no_python && !options.module;
  if (is_script && access(program.c_str(), R_OK) != 0) {
    const int reason = errno;
    throw CannotRun(reason == ENOENT ? 127 : 126, "cannot run " + program + ": " + strerror(reason));
  }
  if (is_script || options.module) {
    // -u: Python would otherwise hold back what a rank prints, because its output is a pipe.
    std::vector<std::string> before = {interpreter(options), "-u"};
    if (options.module) before.emplace_back("-m");
    words.insert(words.begin(), before.begin(), before.end());
  } else if (!options.python.empty() && (program == "python" || program == "python3")) {
    words.front() = options.python;
  }
  return words;
}

}  // namespace gangway::tools

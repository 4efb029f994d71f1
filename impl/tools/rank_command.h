// The command line of a rank: a program as it is, or a Python script or module under an interpreter.
//
// Thread rule: pure functions of their arguments and the environment.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

namespace gangway::tools {

// The program cannot be started. The status is a shell's: 126 or 127.
class CannotRun : public std::runtime_error {
 public:
  CannotRun(int status, const std::string& text) : std::runtime_error(text), status(status) {}
  const int status;
};

struct RankCommandOptions {
  bool module = false;     // the first word is a Python module
  bool no_python = false;  // a .py file is started as it is
  // The interpreter of scripts and modules, and what the words "python" and "python3" mean. If it is empty,
  // scripts and modules run under the python3 of $VIRTUAL_ENV, else of PATH, and both words stay as they are.
  std::string python;
};

// Returns the words to execute. CannotRun: the .py file cannot be read.
std::vector<std::string> rank_command(std::vector<std::string> words, const RankCommandOptions& options);

}  // namespace gangway::tools

// The tools. Belongs here: main programs (gangrun, gw-info) and what they alone need. Does not: anything that a library's
// caller could want.
//
// Starts the ranks of a job on this host and watches over them until the last one has ended. Thread rule: one
// thread, which must be the only one of its process.
#pragma once

#include <string>
#include <vector>

namespace gangway::tools {

struct Program {
  int ranks = 1;
  std::vector<std::string> command;
};

struct LaunchOptions {
  std::vector<Program> programs;  // of one gang: the first has the lowest ranks
  int max_restarts = 0;
  double timeout_s = 0;  // for the whole job; 0: none
  double grace_s = 2;    // that the others have, when a rank failed, to end by themselves
  bool prefix = true;

  int ranks() const {
    int all = 0;
    for (const Program& program : programs) all += program.ranks;
    return all;
  }
};

// The exit status: 0, or that of the rank that failed first (128 + the signal that killed it), 124 when the
// time was up, 126 or 127 when the program could not be started.
int launch(const LaunchOptions& options);

}  // namespace gangway::tools

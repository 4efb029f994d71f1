// The tools. Belongs here: main programs (gangrun, gw-info, gw-plan, gw-trace) and what only they need. Does
// not belong here: anything that a caller of the library could want.
//
// This header starts the ranks of a job on this host and watches over them until the last one has ended.
//
// Thread rule: one thread, which must be the only one of its process.
#pragma once

#include <string>
#include <vector>

namespace gangway::tools {

struct Program {
  int ranks = 1;
  std::vector<std::string> command;
  std::string host;  // set if the program is the remote shell of a host (hosts.h)
};

// What a node (a gangrun that another one has started on this host) is told of the whole job.
struct Node {
  int first_rank = 0;  // of the ranks of this host
  int world = 0;       // the ranks of all hosts; 0: this gangrun is no node
  std::string master = "127.0.0.1";
  int port = 0;
  std::string job;
  int restart = 0;
};

struct LaunchOptions {
  std::vector<Program> programs;  // the programs of one gang: the first has the lowest ranks
  int max_restarts = 0;
  double timeout_s = 0;  // for the whole job; 0: none
  // After a rank has failed, the time in which the others may end by themselves.
  double grace_s = 2;
  // After SIGINT, SIGTERM or SIGHUP, the time in which the ranks may save and end before they are killed.
  double end_grace_s = 300;
  bool prefix = true;
  Node node;

  int ranks() const {
    int all = 0;
    for (const Program& program : programs) all += program.ranks;
    return all;
  }
};

// Runs the job and returns its exit status: 0, the status of the rank that failed first (128 + the signal
// that killed it), 124 if the time was up, or 126 or 127 if a program could not be started.
int launch(const LaunchOptions& options);

}  // namespace gangway::tools

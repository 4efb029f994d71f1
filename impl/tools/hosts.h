// gangrun over several hosts. The gangrun that the user starts runs one process for each host, which opens a
// remote shell and starts a gangrun there, the node. The node starts the ranks of its host. The secret goes
// through the standard input of the remote shell, never in an argument; when that input ends, because the
// user's gangrun has ended or has given the host up, the node ends its ranks.
//
// Thread rule: pure functions of their arguments.
#pragma once

#include <string>
#include <vector>

#include "tools/launch.h"

namespace gangway::tools {

struct Host {
  std::string name;
  int ranks = 1;
};

// Reads "a,b:2,[fd77::1]:4": hosts, each with its number of ranks, else `ranks`. std::invalid_argument: an
// empty name, a name twice, or a count that is not one, or more ranks in all than gangrun starts.
std::vector<Host> read_hosts(const std::string& list, int ranks);
// Reads a file with a host in each line: "name", "name:2" or "name slots=2". "#" begins a comment.
std::vector<Host> read_host_file(const std::string& path, int ranks);

// Returns the programs of the user's gangrun: one process for each host. `agent` is the part of a shell's
// line before the name of the host, such as "ssh -p 22"; `options` are words for every node, and `command` is
// the program.
std::vector<Program> programs_on(const std::vector<Host>& hosts, const std::string& agent,
                                 const std::vector<std::string>& options,
                                 const std::vector<std::string>& command);

// Reads "FIRST/WORLD" (a node's first rank, and the number of ranks on all hosts) into `out`. Throws
// std::invalid_argument for anything else.
void read_node(const std::string& word, Node& out);

}  // namespace gangway::tools

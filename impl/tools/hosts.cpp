#include "tools/hosts.h"

#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "tools/rank_count.h"

namespace gangway::tools {
namespace {

// Returns the word as a shell reads it back.
std::string quoted(const std::string& word) {
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string quoted(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += " " + quoted(word);
  return out;
}

int count_of(const std::string& word, const std::string& host) {
  size_t used = 0;
  int count = 0;
  try {
    count = std::stoi(word, &used);
  } catch (const std::exception&) {
  }
  if (used == 0 || used != word.size() || count < 1 || count > kMostRanks)
    throw std::invalid_argument("host " + host + ": \"" + word + "\" is not a number of ranks from 1 to " +
                                std::to_string(kMostRanks));
  return count;
}

void add(std::vector<Host>& hosts, Host host) {
  if (host.name.empty() || host.name.front() == '-')
    throw std::invalid_argument("\"" + host.name + "\" is not the name of a host");
  for (const Host& other : hosts)
    if (other.name == host.name)
      throw std::invalid_argument("host " + host.name + " stands twice; write " + host.name +
                                  ":COUNT for several ranks");
  hosts.push_back(std::move(host));
  int ranks = 0;
  for (const Host& one : hosts) ranks += one.ranks;
  if (ranks > kMostRanks)
    throw std::invalid_argument("the hosts have " + std::to_string(ranks) + " ranks in all, more than " +
                                std::to_string(kMostRanks));
}

// "name", "name:2", "[fd77::1]" or "[fd77::1]:2".
Host read_host(const std::string& word, int ranks) {
  const size_t bracket = word.starts_with("[") ? word.find(']') : std::string::npos;
  const size_t colon = word.find(':', bracket == std::string::npos ? 0 : bracket);
  Host host{word.substr(0, colon), ranks};
  if (bracket != std::string::npos) {
    if (bracket + 1 != std::min(colon, word.size()))
      throw std::invalid_argument("\"" + word + "\" is not \"[ADDRESS]\" or \"[ADDRESS]:COUNT\"");
    host.name = word.substr(1, bracket - 1);
  }
  if (colon != std::string::npos) host.ranks = count_of(word.substr(colon + 1), host.name);
  return host;
}

std::string own_path() {
  char path[PATH_MAX];
  const ssize_t n = readlink("/proc/self/exe", path, sizeof path);
  return n > 0 ? std::string(path, static_cast<size_t>(n)) : "gangrun";
}

std::string own_folder() {
  char path[PATH_MAX];
  return getcwd(path, sizeof path) != nullptr ? path : ".";
}

}  // namespace

std::vector<Host> read_hosts(const std::string& list, int ranks) {
  std::vector<Host> hosts;
  std::istringstream words(list);
  for (std::string word; std::getline(words, word, ',');) add(hosts, read_host(word, ranks));
  if (hosts.empty()) throw std::invalid_argument("--hosts names no host");
  return hosts;
}

std::vector<Host> read_host_file(const std::string& path, int ranks) {
  std::ifstream file(path);
  if (!file) throw std::invalid_argument("--hostfile: " + path + " cannot be read");
  std::vector<Host> hosts;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string name, slots;
    if (!(words >> name)) continue;
    Host host = read_host(name, ranks);
    if (words >> slots) {
      if (!slots.starts_with("slots=") || words >> name)
        throw std::invalid_argument("--hostfile: \"" + line +
                                    "\" is not \"NAME\", \"NAME:COUNT\" or \"NAME slots=COUNT\"");
      host.ranks = count_of(slots.substr(6), host.name);
    }
    add(hosts, std::move(host));
  }
  if (hosts.empty()) throw std::invalid_argument("--hostfile: " + path + " names no host");
  return hosts;
}

// A node reads the secret and then signals from its input (attempt.h), whose end is the end of its job. The
// user's gangrun sets $GANGWAY_JOB and the like when it starts bash.
std::vector<Program> programs_on(const std::vector<Host>& hosts, const std::string& agent,
                                 const std::vector<std::string>& options,
                                 const std::vector<std::string>& command) {
  int world = 0, first = 0;
  for (const Host& host : hosts) world += host.ranks;
  std::vector<Program> programs;
  for (const Host& host : hosts) {
    const std::string node = "cd " + quoted(own_folder()) + " && exec " + quoted(own_path()) + " -n " +
                             std::to_string(host.ranks) + " --node " + std::to_string(first) + "/" +
                             std::to_string(world) + " --node-master " + quoted(hosts[0].name);
    const std::string script =
        "exec " + agent + " " + quoted(host.name) + " " + quoted(node) +
        "\" --node-port $MASTER_PORT --node-job $GANGWAY_JOB --node-restart $GANGWAY_RESTART_COUNT\"" +
        quoted(quoted(options) + " --" + quoted(command));
    programs.push_back({1, {"bash", "-c", script}, host.name});
    first += host.ranks;
  }
  return programs;
}

void read_node(const std::string& word, Node& out) {
  char rest = 0;
  if (std::sscanf(word.c_str(), "%d/%d%c", &out.first_rank, &out.world, &rest) != 2 || out.first_rank < 0 ||
      out.world <= out.first_rank || out.world > kMostRanks)
    throw std::invalid_argument("--node " + word + ": not FIRST/WORLD");
}

}  // namespace gangway::tools

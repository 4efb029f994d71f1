#include "common/peers.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "common/side.h"

namespace gangway::bench {
namespace {

const std::string kFolder = GANGWAY_BENCH_BUILD;  // of this build
const std::string kPeers = GANGWAY_BENCH_SOURCE "/peers";

// Is the program newer than all that it is compiled from?
bool is_new(const std::string& program, const std::string& source) {
  struct stat made, from;
  if (stat(program.c_str(), &made) != 0) return false;
  for (const std::string& file : {source, std::string(GANGWAY_BENCH_SOURCE "/common/rank.h"),
                                  std::string(GANGWAY_BENCH_SOURCE "/collectives/job.h")})
    if (stat(file.c_str(), &from) != 0 || from.st_mtime >= made.st_mtime) return false;
  return true;
}

}  // namespace

std::string beside_this_program(const std::string& name) {
  return (std::filesystem::read_symlink("/proc/self/exe").parent_path() / name).string();
}

std::string peer_source(const std::string& name) {
  const std::string packed = beside_this_program("peers/" + name);
  return access(packed.c_str(), R_OK) == 0 ? packed : kPeers + "/" + name;
}

bool install_peers(const std::string& what) {
  const std::string command = "bash '" + kPeers + "/install.sh' " + what + " '" + kFolder + "' 1>&2";
  return std::system(command.c_str()) == 0;
}

std::string compile_peer(const std::string& source, const std::string& name, const std::string& compiler,
                         const std::string& libraries, std::string* why) {
  const std::string program = kFolder + "/" + name, text = peer_source(source);
  const std::string tool = compiler.substr(0, compiler.find(' '));
  if (is_new(program, text)) return program;
  if (output_of("command -v " + tool).empty()) {
    *why = tool + " is not installed";
    return "";
  }
  const std::string command = compiler + " '" + text + "' -o '" + program + "' " + libraries;
  if (std::system((command + " >'" + program + ".log' 2>&1").c_str()) == 0) return program;
  *why = "does not compile, see " + program + ".log";
  return "";
}

std::string torch_python() {
  const char* chosen = std::getenv("GANGWAY_BENCH_PYTHON");
  for (const std::string& python :
       {std::string(chosen ? chosen : ""), kFolder + "/venv/bin/python", std::string("python3")})
    if (!python.empty() &&
        !output_of("'" + python +
                   "' -c 'import importlib.util as u; assert u.find_spec(\"torch\"); print(1)'")
             .empty())
      return python;
  return "";
}

}  // namespace gangway::bench

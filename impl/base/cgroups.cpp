#include "base/cgroups.h"

#include <filesystem>
#include <fstream>
#include <sstream>

namespace gangway {
namespace {

// Returns whether a comma-separated list has the name.
bool lists(const std::string& names, const std::string& name) {
  std::istringstream in(names);
  for (std::string one; std::getline(in, one, ',');)
    if (one == name) return true;
  return false;
}

// Returns the folder at which version 1 mounts the controller. Some systems mount controllers together
// ("cpu,cpuacct") without a link for each.
std::string mount_of(const std::string& mounts, const std::string& controller,
                     const std::string& controllers) {
  std::error_code none;
  const std::string own = mounts + "/" + controller;
  return std::filesystem::exists(own, none) ? own : mounts + "/" + controllers;
}

}  // namespace

void for_each_cgroup(const char* controller, const std::function<void(const std::string&, bool)>& look,
                     const CgroupFiles& files) {
  std::ifstream in(files.groups);
  for (std::string line; std::getline(in, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    std::string path = line.substr(second + 1);
    const bool unified = controllers.empty();
    if (!unified && !lists(controllers, controller)) continue;
    const std::string mount = unified ? files.mounts : mount_of(files.mounts, controller, controllers);
    while (!path.empty() && path != "/") {
      look(mount + path + "/", unified);
      path = path.substr(0, path.rfind('/'));
    }
    look(mount + "/", unified);
  }
}

}  // namespace gangway

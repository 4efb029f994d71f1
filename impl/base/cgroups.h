// The control groups that this process is in, from its own group up to the root, of version 1 and version 2.
//
// Thread rule: any thread.
#pragma once

#include <functional>
#include <string>

namespace gangway {

// Where the kernel describes control groups. Tests give files of their own.
struct CgroupFiles {
  std::string groups = "/proc/self/cgroup";
  std::string mounts = "/sys/fs/cgroup";
};

// Calls `look` for each control group of the controller ("memory", "cpu"). `folder` holds the group's files
// and ends with a slash; `unified` says that they are of version 2. A folder may be missing: in a container
// the kernel names groups that only the host sees.
void for_each_cgroup(const char* controller,
                     const std::function<void(const std::string& folder, bool unified)>& look,
                     const CgroupFiles& files = {});

}  // namespace gangway

#include "base/cores.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <thread>

namespace gangway {
namespace {

constexpr double kNoQuota = std::numeric_limits<double>::infinity();

// Version 2 has both numbers in one file, as "50000 100000" or "max 100000". Version 1 has a file for each,
// and a quota of -1 means none.
double quota_in(const std::string& folder, bool unified) {
  double quota = 0, period = 0;
  if (unified) {
    std::ifstream in(folder + "cpu.max");
    if (!(in >> quota >> period)) return kNoQuota;
  } else {
    std::ifstream quota_file(folder + "cpu.cfs_quota_us"), period_file(folder + "cpu.cfs_period_us");
    if (!(quota_file >> quota) || !(period_file >> period)) return kNoQuota;
  }
  return quota > 0 && period > 0 ? quota / period : kNoQuota;
}

int affinity() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
  return static_cast<int>(std::thread::hardware_concurrency());
}

}  // namespace

double cpu_quota(const CgroupFiles& files) {
  double least = kNoQuota;
  for_each_cgroup(
      "cpu",
      [&](const std::string& folder, bool unified) { least = std::min(least, quota_in(folder, unified)); },
      files);
  return least;
}

int usable_cores() {
  const int cores = std::max(1, affinity());
  return static_cast<int>(std::clamp(cpu_quota(), 1.0, static_cast<double>(cores)));
}

}  // namespace gangway

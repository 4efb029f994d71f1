#include "base/cores.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "support/scratch.h"

namespace gangway {
namespace {

namespace fs = std::filesystem;

// The files of control groups, as the kernel shows them.
class CpuQuota : public testing::Test {
 protected:
  void write(const std::string& file, const std::string& text) const {
    const fs::path path = folder_ + "/" + file;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text << "\n";
  }
  double quota(const std::string& groups) const {
    write("groups", groups);
    return cpu_quota({folder_ + "/groups", folder_ + "/mounts"});
  }

  const Scratch scratch_;
  const std::string folder_ = scratch_.path();
};

TEST_F(CpuQuota, OfVersion2IsTheTightestUpToTheRoot) {
  EXPECT_TRUE(std::isinf(quota("0::/a/b"))) << "no such files";
  write("mounts/a/b/cpu.max", "max 100000");
  EXPECT_TRUE(std::isinf(quota("0::/a/b")));
  write("mounts/a/b/cpu.max", "150000 100000");
  EXPECT_EQ(quota("0::/a/b"), 1.5);
  write("mounts/a/cpu.max", "50000 100000");
  EXPECT_EQ(quota("0::/a/b"), 0.5);
  EXPECT_EQ(quota("0::/other"), INFINITY);
}

TEST_F(CpuQuota, OfAContainerLiesAtTheRootWhateverTheHostCallsTheGroup) {
  write("mounts/cpu.max", "250000 100000");
  EXPECT_EQ(quota("0::/docker/0123456789"), 2.5);
  EXPECT_EQ(quota("0::/"), 2.5);
}

TEST_F(CpuQuota, OfVersion1HasTwoFiles) {
  const std::string groups = "5:memory:/a\n4:cpu,cpuacct:/a\n1:name=systemd:/a\n0::/a";
  write("mounts/cpu/a/cpu.cfs_quota_us", "-1");
  write("mounts/cpu/a/cpu.cfs_period_us", "100000");
  EXPECT_TRUE(std::isinf(quota(groups)));
  write("mounts/cpu/a/cpu.cfs_quota_us", "50000");
  EXPECT_EQ(quota(groups), 0.5);
  fs::rename(folder_ + "/mounts/cpu", folder_ + "/mounts/cpu,cpuacct");
  EXPECT_EQ(quota(groups), 0.5);
  EXPECT_TRUE(std::isinf(quota("5:memory:/a\n4:cpuset:/a"))) << "the process is in no group of cpu";
}

TEST_F(CpuQuota, FilesThatHoldSomethingElseAreNoQuota) {
  for (const char* const text : {"", "nonsense", "0 100000", "100000", "100000 0", "-5 100000"}) {
    write("mounts/a/cpu.max", text);
    EXPECT_TRUE(std::isinf(quota("0::/a"))) << text;
  }
  EXPECT_TRUE(std::isinf(quota("")));
  EXPECT_TRUE(std::isinf(quota("no colons\n1:cpu")));
}

TEST(UsableCores, AreThoseOfTheAffinity) {
  cpu_set_t all, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
  EXPECT_GE(usable_cores(), 1);
  EXPECT_LE(usable_cores(), CPU_COUNT(&all));
  CPU_ZERO(&one);
  int first = 0;
  while (!CPU_ISSET(first, &all)) ++first;
  CPU_SET(first, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(usable_cores(), 1);
  ASSERT_EQ(sched_setaffinity(0, sizeof all, &all), 0);
}

}  // namespace
}  // namespace gangway

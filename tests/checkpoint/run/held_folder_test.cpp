// The folder of a run on the rank that holds it: its lease is renewed whatever else happens.
#include "checkpoint/run/held_folder.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "base/deadline.h"
#include "checkpoint/run/small_checkpoint.h"

namespace gangway::test {
namespace {

constexpr std::chrono::milliseconds kSoon{10};

// Makes the lease look as if it was not renewed since 1970, and waits until it is renewed.
bool is_renewed(const std::string& folder) {
  const std::string lease = folder + "/.lease";
  const timespec long_ago[2] = {{1000, 0}, {1000, 0}};
  EXPECT_EQ(utimensat(AT_FDCWD, lease.c_str(), long_ago, 0), 0);
  for (const Deadline deadline = Deadline::after_ms(20'000); !deadline.passed();) {
    struct stat status {};
    EXPECT_EQ(stat(lease.c_str(), &status), 0);
    if (status.st_mtim.tv_sec != 1000) return true;
    std::this_thread::sleep_for(kSoon);
  }
  return false;
}

// A commit syncs a whole checkpoint, which may take longer than a lease lasts.
TEST(HeldFolder, RenewsTheLeaseWhileAUseOfTheFolderTakesLong) {
  const TemporaryFolder folder;
  HeldFolder held(kSoon);
  ASSERT_TRUE(held.try_open(folder.path(), "a"));
  EXPECT_TRUE(is_renewed(folder.path()));
  held.use([&](const RunFolder&) { EXPECT_TRUE(is_renewed(folder.path())); });
}

}  // namespace
}  // namespace gangway::test

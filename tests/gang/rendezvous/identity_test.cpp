// What ranks tell each other of their host and their build before they make a gang.
#include "gang/rendezvous/identity.h"

#include <cstring>
#include <vector>

#include "base/expect_error.h"
#include "base/library_build.h"

namespace gangway::test {
namespace {

TEST(RankIdentity, RanksOfOneHostAreEqual) {
  const std::vector<RankIdentity> all(3, own_identity());
  EXPECT_TRUE(on_one_host(all));
  EXPECT_TRUE(on_one_host(std::span(all).first(1)));
  EXPECT_LT(std::strlen(all[0].host), sizeof all[0].host - 1) << "the whole name fits";
  EXPECT_STREQ(all[0].build, library_build());
  EXPECT_EQ(std::strlen(all[0].build), 16U);
}

TEST(RankIdentity, AnotherNamespaceIsAnotherHost) {
  std::vector<RankIdentity> all(3, own_identity());
  all[2].host[0] ^= 1;
  EXPECT_FALSE(on_one_host(all));
}

TEST(RankIdentity, RanksOfTwoBuildsAreRefusedWithBothIds) {
  std::vector<RankIdentity> all(3, own_identity());
  std::memset(all[2].build, 0, sizeof all[2].build);
  std::memcpy(all[2].build, "another", 7);
  expect_error(Code::invalid_state,
               text("gang.create: rank 2 runs build another of the library, rank 0 build ", library_build(),
                    "; start all ranks with the same library"),
               [&] { on_one_host(all); });
  std::memset(all[2].build, 0, sizeof all[2].build);  // of a release that does not tell
  EXPECT_EQ(error_of([&] { on_one_host(all); }).code(), Code::invalid_state);
}

}  // namespace
}  // namespace gangway::test

// Reports of lost ranks that their writer did not finish; two ranks' watchdog threads in this process.
#include <chrono>
#include <thread>

#include "gang/host/presence/member.h"
#include "gang/host/threads.h"

namespace gangway::test {
namespace {

using namespace gangway::host;

constexpr int64_t kLivenessMs = 60'000;

struct Two {
  std::shared_ptr<Arena> arena = Arena::create(3, /*threads=*/false, {uint64_t{1} << 30, 0, kLivenessMs});
  std::vector<std::shared_ptr<Member>> members;

  Two() {
    for (const int r : {0, 1}) members.push_back(std::make_shared<Member>(arena, r));
    for (const auto& member : members) member->begin(member);
  }
  RankSlot& third() const { return arena->rank(2); }
};

template <typename Over>
void wait_until(const char* what, Over&& over) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!over()) {
    ASSERT_LT(std::chrono::steady_clock::now(), end) << what;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

TEST(HostWatchdog, AnotherMemberFinishesAReportWhoseWriterEnded) {
  Two two;
  const uint32_t before = two.members[0]->losses();
  two.third().state.store(static_cast<int32_t>(RankState::reporting));
  wait_until("the loss", [&] { return two.members[0]->loss(2).has_value(); });
  wait_until("its count", [&] { return two.members[0]->losses() != before; });
  EXPECT_EQ(two.members[0]->loss(2)->cause, LossCause::silent) << "what nobody saw die may yet wake";
}

TEST(HostWatchdog, AnotherMemberCountsALossThatWasNotCounted) {
  Two two;
  const uint32_t before = two.members[0]->losses();
  two.third().loss_cause.store(static_cast<int32_t>(LossCause::exit));
  two.third().state.store(static_cast<int32_t>(RankState::lost));
  wait_until("its count", [&] { return two.members[0]->losses() != before; });
  EXPECT_EQ(two.members[0]->loss(2)->cause, LossCause::exit);
}

}  // namespace
}  // namespace gangway::test

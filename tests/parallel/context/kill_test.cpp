// Kills one of several ranks that compute attention together, and checks the errors of the survivors.
#include "gang/host/joined.h"
#include "gang/host/mix.h"
#include "parallel/context/dense.h"

namespace gangway::test {
namespace {

void attend(ContextMethod method, int rank, int size, const std::shared_ptr<Store>& store, Report& report) {
  GangOptions options = thread_rank_options();
  options.rank = rank;
  options.size = size;
  options.store = store;
  const GangPtr root = Gang::create(options);
  const Problem p{1, 64 * size, size, size, 16, true};
  const Dense dense(p);
  CoreRig rig(*root);
  const auto core = core_of(p, *root, method);
  until_failure(report, [&] {
    run_core(*core, p, dense, DType::f32, *root, rig);
    rig.frame.reset();
    ++report.stage;
  });
  report.gang_code = root->error() ? static_cast<int64_t>(root->error()->code()) : 0;
}

TEST(ContextKill, SixtyKillsAtRandomPointsAreNamedByEverySurvivor) {
  for (uint64_t round = 0; round < 60; ++round) {
    const ContextMethod method = kMethods[round % 3];
    const int size = 2 + static_cast<int>(drawn(round, 0) % 3);
    const int victim = static_cast<int>(drawn(round, 1) % static_cast<uint64_t>(size));
    Processes ranks(size, [&](int r, const std::shared_ptr<Store>& store, Report& report) {
      attend(method, r, size, store, report);
    });
    ranks.wait_for_stage(victim, 1 + static_cast<int>(drawn(round, 2) % 5));
    usleep(static_cast<useconds_t>(drawn(round, 3) % 2000));
    ranks.kill(victim, SIGKILL);
    ranks.join();
    for (int r = 0; r < size; ++r) {
      if (r == victim) continue;
      Report& report = ranks.report(r);
      ASSERT_TRUE(ranks.ended_well(r)) << name(method) << " rank " << r << ": " << report.text;
      ASSERT_EQ(report.code, static_cast<int64_t>(Code::peer_lost)) << report.text;
      ASSERT_EQ(report.peer, victim) << report.text;
      ASSERT_NE(std::strstr(report.text, text("rank ", victim, " (host ").c_str()), nullptr) << report.text;
      ASSERT_EQ(report.gang_code, static_cast<int64_t>(Code::peer_lost)) << "the gang is broken, too";
    }
  }
}

}  // namespace
}  // namespace gangway::test

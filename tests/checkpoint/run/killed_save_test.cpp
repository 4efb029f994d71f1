// A rank, which is a process, is killed during a save: the earlier checkpoints stay, and the next run goes
// on.
#include <csignal>

#include "checkpoint/file_calls.h"
#include "checkpoint/run/run_testing.h"
#include "gang/processes.h"

namespace gangway::test {
namespace {

RunCase on_ranks(int ranks) {
  RunCase c;
  c.mesh.shards = ranks;
  return c;
}

// Rank `victim` is killed in its n-th write of the second save.
void train_and_die(const std::string& folder, int victim, int writes, int rank,
                   const std::shared_ptr<Store>& store, Report& report) {
  GangOptions options = thread_rank_options();
  options.rank = rank;
  options.size = 3;
  options.store = store;
  const GangPtr root = Gang::create(options);
  const TrainingRun run(*root, on_ranks(3));
  Checkpoints checkpoints(run.gangs(), in_folder(folder));
  run.step(0);
  checkpoints.save({run.part()}, at_step(1));
  checkpoints.wait();
  if (rank == victim)
    set_before_call([left = std::make_shared<std::atomic<int>>(writes)](const std::string& call, int64_t) {
      return call == "pwrite" && (*left)-- <= 0 ? raise(SIGKILL) : 0;
    });
  try {
    checkpoints.save({run.part()}, at_step(2));
    checkpoints.wait();
  } catch (const Error& error) {
    report.code = static_cast<int64_t>(error.code());
    report.say(error.message());
  }
}

TEST(KilledSave, OfACheckpointBreaksThatSaveAlone) {
  for (const auto& [victim, writes] : {std::pair(0, 0), {0, 6}, {1, 0}, {2, 3}}) {
    const TemporaryFolder folder;
    {
      Processes ranks(
          3, [&, v = victim, w = writes](int r, const std::shared_ptr<Store>& store, Report& report) {
            train_and_die(folder.path(), v, w, r, store, report);
          });
      ranks.join();
      for (int r = 0; r < 3; ++r) {
        if (r == victim) continue;
        EXPECT_TRUE(ranks.ended_well(r)) << ranks.report(r).text;
        EXPECT_EQ(ranks.report(r).code, static_cast<int64_t>(Code::peer_lost)) << ranks.report(r).text;
      }
    }
    EXPECT_EQ(complete(folder.path()), (std::vector<std::string>{"step-00000001"}));
    Processes next(1, [&](int, const std::shared_ptr<Store>&, Report&) {
      run_ranks(1, [&](Gang& root) {
        const TrainingRun run(root, on_ranks(1));
        Checkpoints checkpoints(run.gangs(), in_folder(folder.path()));
        EXPECT_EQ(checkpoints.restore({run.part()}, {})->state.step, 1);
        checkpoints.save({run.part()}, at_step(2));
        checkpoints.wait();
      });
    });
    next.expect_all_well();
    EXPECT_EQ(complete(folder.path()), (std::vector<std::string>{"step-00000001", "step-00000002"}));
    for (const std::string& name : folder.names()) EXPECT_EQ(name.find(".writing"), std::string::npos);
  }
}

}  // namespace
}  // namespace gangway::test

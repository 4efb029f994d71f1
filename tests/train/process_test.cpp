// Training steps over shared regions, with ranks that are processes. A process must not fork after it has had
// gangs, so all cases of a test run in one set of children.
#include "gang/processes.h"
#include "train/paused.h"
#include "train/unshard_traffic.h"

namespace gangway {
namespace {

template <typename Body>
void run_processes(int size, Body&& body) {
  test::Processes ranks(size, [&](int rank, const std::shared_ptr<Store>& store, test::Report&) {
    GangOptions options = test::thread_rank_options();
    options.rank = rank;
    options.size = size;
    options.store = store;
    const GangPtr root = Gang::create(options);
    body(*root);
    root->shutdown(10'000);
  });
  ranks.expect_all_well();
}

TEST(ProcessVersionGate, PeersPausedInsideBackwardOfATrainingStepReadOldBits) {
  run_processes(3, [](Gang& root) {
    for (const test::PausedCase& c : test::paused_cases()) test::expect_paused_ranks_read_old_bits(root, c);
  });
}

TEST(ProcessFullyShard, OnOneHostUnshardMovesNoBytesAndNothingIsStaged) {
  const test::Reference reference("llama_parity");
  for (const int ranks : {2, 3, 4})
    run_processes(ranks, [&](Gang& root) {
      for (const test::TrafficCase& c : test::traffic_cases(ranks))
        test::expect_unshard_moves_nothing(root, reference, c);
    });
}

}  // namespace
}  // namespace gangway

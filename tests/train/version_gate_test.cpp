// Training steps over shared regions: what ranks read and write of each other's rows.
#include "train/paused.h"
#include "train/unshard_traffic.h"

namespace gangway {
namespace {

TEST(VersionGate, PeersPausedInsideBackwardOfATrainingStepReadOldBits) {
  for (const test::PausedCase& c : test::paused_cases())
    test::run_ranks(3, [&](Gang& root) { test::expect_paused_ranks_read_old_bits(root, c); });
}

TEST(FullyShard, OnOneHostUnshardMovesNoBytesAndNothingIsStaged) {
  const test::Reference reference("llama_parity");
  for (const int ranks : {2, 3, 4})
    for (const test::TrafficCase& c : test::traffic_cases(ranks))
      test::run_ranks(ranks, [&](Gang& root) { test::expect_unshard_moves_nothing(root, reference, c); });
}

}  // namespace
}  // namespace gangway

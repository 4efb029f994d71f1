// In every program whose tests go over the instruction sets in a loop: says which of them the loop left out.
#include "ops/ops_testing.h"

namespace gangway {
namespace {

TEST(InstructionSets, EveryOneWasRun) {
  if (!ops_testing::on_cpu()) GTEST_SKIP() << "the instruction sets are a cpu's";
  const cpu::Isa best = cpu::processor_isa();
  if (best != cpu::Isa::avx512)
    GTEST_SKIP() << "the loops of this program ended at " << cpu::name(best)
                 << ", the highest instruction set of this processor; avx512 was not run";
  EXPECT_EQ(ops_testing::available_isas().size(), 3u);
}

}  // namespace
}  // namespace gangway

// Bytes that the module's own kernels move, by count of their own accesses.
#include <gtest/gtest.h>

#include "timeline/kernel_traffic.h"

namespace gangway::timeline {
namespace {

TEST(KernelTraffic, EveryBandwidthBoundKernelMovesAtMostATwentiethMoreThanItMust) {
  for (const KernelTraffic& row : kernel_traffic()) {
    EXPECT_LE(row.moved, row.limit * row.least)
        << row.operation << ", " << row.dtype << " (" << row.reason << ")";
    EXPECT_GE(row.moved, row.least) << row.operation << ", " << row.dtype
                                    << ": not all accesses were counted";
  }
}

}  // namespace
}  // namespace gangway::timeline

// A fixture for tests of the own kernels that run on the software GPU only. The interpreter that stands in
// for cuDNN there would compute a part of them.
#pragma once

#include <cstdlib>

#include "gpu_emulation/emulator.h"
#include "ops/kernel_testing.h"
#include "support/placed.h"

namespace gangway::ops_testing {

class OnSoftwareGpu : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    // It may name another build of the module.
    setenv("GANGWAY_MODULES", placed("@build@/tests/gpu_emulation").c_str(), 0);
    setenv("GANGWAY_TEST_DEVICE", "cuda", 1);
    setenv("GANGWAY_CUDNN", "0", 1);
  }
  void TearDown() override { EXPECT_EQ(gpu_emulation::calls("cudnnBackendExecute"), 0); }
};

}  // namespace gangway::ops_testing

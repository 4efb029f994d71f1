// A fixture for tests of the own kernels that run on the software GPU only. The interpreter that stands in
// for cuDNN there would compute a part of them.
#pragma once

#include <cstdlib>

#include "gpu_emulation/emulator.h"
#include "ops/kernel_testing.h"

namespace gangway::ops_testing {

class OnSoftwareGpu : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    setenv("GANGWAY_MODULES", GANGWAY_CUDA_FOLDER, 0);  // which may name another build of the module
    setenv("GANGWAY_TEST_DEVICE", "cuda", 1);
    setenv("GANGWAY_CUDNN", "0", 1);
  }
  void TearDown() override { EXPECT_EQ(gpu_emulation::calls("cudnnBackendExecute"), 0); }
};

}  // namespace gangway::ops_testing

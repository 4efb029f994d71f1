// A fixture for tests of operations that run on the software GPU only.
#pragma once

#include <cstdlib>

#include "ops/kernel_testing.h"

namespace gangway::ops_testing {

class OnSoftwareGpu : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    setenv("GANGWAY_MODULES", GANGWAY_CUDA_FOLDER, 1);
    setenv("GANGWAY_TEST_DEVICE", "cuda", 1);
  }
};

}  // namespace gangway::ops_testing

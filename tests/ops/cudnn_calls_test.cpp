// The errors for a cuDNN that is missing, is too old, or lacks a function.
#include "ops/cuda/cudnn/calls.h"

#include <gtest/gtest.h>

#include "base/error_of.h"
#include "support/placed.h"

namespace gangway::cuda {
namespace {

void expect_refusal(const char* file, const std::string& words) {
  const Error error = test::error_of([&] { load_cudnn(file); });
  EXPECT_EQ(error.code(), Code::not_supported);
  EXPECT_NE(error.message().find(words), std::string::npos) << error.message();
}

TEST(CudnnCalls, AMissingLibraryIsNamed) {
  expect_refusal("libcudnn_that_is_not_there.so.9", "cuDNN: libcudnn_that_is_not_there.so.9: cannot open");
}

TEST(CudnnCalls, AnOldLibraryIsRefusedWithBothVersions) {
  expect_refusal(placed("@build@/tests/ops/libold_cudnn.so").c_str(),
                 "is version 9.10.2, older than the 9.19.0 that this module needs");
}

TEST(CudnnCalls, ALibraryWithoutAFunctionIsRefusedWithItsName) {
  expect_refusal("libm.so.6", "cuDNN: libm.so.6 has no cudnnGetVersion");
}

}  // namespace
}  // namespace gangway::cuda

#include "base/config.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/error.h"

namespace gangway {
namespace {

TEST(Config, ABadIntegerIsRefusedWithItsVariableAndValue) {
  setenv("GANGWAY_NUM_THREADS", "two", 1);
  try {
    read_config();
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::invalid_argument);
    EXPECT_NE(e.message().find("GANGWAY_NUM_THREADS is \"two\""), std::string::npos) << e.message();
  }
  unsetenv("GANGWAY_NUM_THREADS");
}

TEST(Config, AnUnknownInstructionSetIsRefused) {
  setenv("GANGWAY_CPU_ISA", "sse9", 1);
  EXPECT_THROW(read_config(), Error);
  setenv("GANGWAY_CPU_ISA", "portable", 1);
  EXPECT_EQ(read_config().cpu_isa, "portable");
  unsetenv("GANGWAY_CPU_ISA");
}

TEST(Config, ANamedInterfaceDiffersFromNone) {
  unsetenv("GANGWAY_INTERFACE");
  EXPECT_EQ(read_config().interface, "");
  setenv("GANGWAY_INTERFACE", "127.0.0.1", 1);
  EXPECT_EQ(read_config().interface, "127.0.0.1");
  unsetenv("GANGWAY_INTERFACE");
}

TEST(Config, CudnnIsAskedUnlessItSays0) {
  unsetenv("GANGWAY_CUDNN");
  EXPECT_TRUE(read_config().cudnn);
  setenv("GANGWAY_CUDNN", "0", 1);
  EXPECT_FALSE(read_config().cudnn);
  setenv("GANGWAY_CUDNN", "auto", 1);
  EXPECT_TRUE(read_config().cudnn);
  EXPECT_NE(describe(read_config()).find("GANGWAY_CUDNN = auto (set)"), std::string::npos);
  setenv("GANGWAY_CUDNN", "1", 1);
  EXPECT_THROW(read_config(), Error);
  unsetenv("GANGWAY_CUDNN");
}

TEST(Config, SettingsOfNcclHaveDefaultsAndRefuseOtherValues) {
  unsetenv("GANGWAY_NCCL_REGISTER");
  unsetenv("GANGWAY_NCCL_CTA_POLICY");
  EXPECT_EQ(read_config().nccl_register, 1u << 20);
  EXPECT_EQ(read_config().nccl_cta_policy, "efficiency");
  setenv("GANGWAY_NCCL_REGISTER", "0", 1);
  setenv("GANGWAY_NCCL_CTA_POLICY", "zero", 1);
  EXPECT_EQ(read_config().nccl_register, 0u);
  EXPECT_EQ(read_config().nccl_cta_policy, "zero");
  EXPECT_NE(describe(read_config()).find("GANGWAY_NCCL_CTA_POLICY = zero (set)"), std::string::npos);
  setenv("GANGWAY_NCCL_CTA_POLICY", "none", 1);
  EXPECT_THROW(read_config(), Error);
  unsetenv("GANGWAY_NCCL_CTA_POLICY");
  setenv("GANGWAY_NCCL_REGISTER", "-1", 1);
  EXPECT_THROW(read_config(), Error);
  unsetenv("GANGWAY_NCCL_REGISTER");
}

TEST(Config, EmptyCountsAsNotSet) {
  setenv("GANGWAY_PORT", "", 1);
  EXPECT_EQ(read_config().port, 0);
  unsetenv("GANGWAY_PORT");
}

}  // namespace
}  // namespace gangway

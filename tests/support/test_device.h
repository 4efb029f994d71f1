// The device that a test program runs on. A suite is written once. ctest runs its program for each device
// that its CMake line names, and puts the name in GANGWAY_TEST_DEVICE.
#pragma once

#include <cstdlib>
#include <string>

namespace gangway::test {

inline std::string test_device() {
  const char* const wanted = std::getenv("GANGWAY_TEST_DEVICE");
  return wanted == nullptr ? "cpu" : wanted;
}
// The meta device that plans for the test's device.
inline std::string test_meta() { return test_device().starts_with("cuda") ? "meta:cuda" : "meta"; }
inline bool on_cpu() { return test_device() == "cpu"; }

}  // namespace gangway::test

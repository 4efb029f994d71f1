#include "data/data_path.h"

#include <cstdlib>

#include "support/placed.h"

namespace gangway {

// A test program may run on a machine that did not build it. GANGWAY_TEST_DATA then names the folder of the
// data.
std::string test_data(const std::string& file) {
  const char* const folder = std::getenv("GANGWAY_TEST_DATA");
  return (folder != nullptr ? folder : placed("@source@/tests/data")) + "/" + file;
}

}  // namespace gangway

#include "data/data_path.h"

#include <cstdlib>

namespace gangway {

// The variable is for programs that run on another machine than the one that built them.
std::string test_data(const std::string& file) {
  const char* const folder = std::getenv("GANGWAY_TEST_DATA");
  return std::string(folder != nullptr ? folder : GANGWAY_TEST_DATA) + "/" + file;
}

}  // namespace gangway

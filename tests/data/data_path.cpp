#include "data/data_path.h"

#include <cstdlib>

namespace gangway {

// A program that runs on another machine than the one that built it finds its data by GANGWAY_TEST_DATA.
std::string test_data(const std::string& file) {
  const char* const folder = std::getenv("GANGWAY_TEST_DATA");
  return std::string(folder != nullptr ? folder : GANGWAY_TEST_DATA) + "/" + file;
}

}  // namespace gangway

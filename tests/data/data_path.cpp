#include "data/data_path.h"

namespace gangway {

std::string test_data(const std::string& file) { return GANGWAY_TEST_DATA "/" + file; }

}  // namespace gangway

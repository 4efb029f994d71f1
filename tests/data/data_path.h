// The path of a reference file.
#pragma once

#include <string>

namespace gangway {

std::string test_data(const std::string& file);

}  // namespace gangway

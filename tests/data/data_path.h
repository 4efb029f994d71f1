// The path of a reference file. It has an object file of its own, so that no other test contains the path of
// this checkout, and the object files of tests can be cached.
#pragma once

#include <string>

namespace gangway {

std::string test_data(const std::string& file);

}  // namespace gangway

// Where the reference files lie. In an object of its own, so that no other test is compiled with a path of this checkout.
#pragma once

#include <string>

namespace gangway {

std::string test_data(const std::string& file);

}  // namespace gangway

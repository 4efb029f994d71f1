// What the tests that go over every entry know of them.
#pragma once

#include <set>
#include <string>

// Return an int32_t like a status, but it is a fact: -1 of a null handle.
inline const std::set<std::string> kFacts = {"gw_gang_rank", "gw_gang_size", "gw_tensor_is_read_only"};

// Facts about entries of the ABI, for tests that go over every entry.
#pragma once

#include <set>
#include <string>

// These entries return an int32_t that is no status but a fact, or -1 for a null handle.
inline const std::set<std::string> kFacts = {"gw_gang_rank", "gw_gang_size", "gw_tensor_is_read_only"};

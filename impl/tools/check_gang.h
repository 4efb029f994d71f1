// gw-info --check: makes the gang that a launcher describes, and measures it.
//
// Thread rule: one thread.
#pragma once

#include <string>

namespace gangway::tools {

// Collective over the ranks of the environment. Returns the report on rank 0, and "" on the others.
std::string check_gang();

}  // namespace gangway::tools

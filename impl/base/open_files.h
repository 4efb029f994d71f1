// The limit of open files and connections of this process. Who needs many asks first: without descriptors
// connections fail in the middle of the work, which looks as if a peer had died.
//
// Thread rule: any thread.
#pragma once

#include <cstddef>
#include <string>

namespace gangway {

// Raises the soft limit to the hard one where that is needed. IO if fewer than `needed` descriptors are
// left then. `who` begins the text: "gang.create: rank 3".
void check_open_files(size_t needed, const std::string& who, const std::string& what_for);

}  // namespace gangway

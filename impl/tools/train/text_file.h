// Text files that gw-train writes into the run's folder.
//
// Thread rule: any thread.
#pragma once

#include <string>

namespace gangway::train {

// Writes the whole file and returns whether that worked. A symbolic link in its place is not followed: other
// users may be able to write into the folder.
bool write_text_file(const std::string& path, const std::string& text) noexcept;

}  // namespace gangway::train

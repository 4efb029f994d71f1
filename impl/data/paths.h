// The files of a source.
//
// Thread rule: pure functions of the file system.
#pragma once

#include <string>
#include <vector>

namespace gangway::data {

// Returns the files that a path names, in the order of their names' bytes: the file itself; the files of a
// folder that have the ending of tokens (with a format: all but hidden files and indexes); or what a pattern
// with *, ? or [] matches. NOT_FOUND: nothing. IO: the folder cannot be read.
std::vector<std::string> files_of(const std::string& path, const std::string& format);

}  // namespace gangway::data

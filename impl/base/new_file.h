// Files that the library writes under names of its own: traces, logs, pictures. Other users may be able to
// write into their folder, so a symbolic link in the place of such a file is refused and never followed; so
// is a fifo, whose opening would wait for a reader.
//
// Thread rule: any thread.
#pragma once

#include <string>
#include <string_view>

namespace gangway {

// Opens the file for writing, and creates it if it is missing. `flags` is O_TRUNC or O_APPEND, `what` begins
// the text of an error: "metrics: opening". IO.
int open_new_file(const std::string& what, const std::string& path, int flags);

// Writes a whole file. What was in it is lost. IO.
void write_new_file(const std::string& what, const std::string& path, std::string_view text);

}  // namespace gangway

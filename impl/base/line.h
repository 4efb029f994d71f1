// Makes the texts that the C ABI returns: one line of UTF-8, whatever a caller's strings contain.
//
// Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace gangway {

// Cleans `text` in place and keeps its length: a control character becomes a space, and a byte that is not
// UTF-8 becomes a question mark.
void sanitize_line(std::string& text) noexcept;
// Copies as much of `text` as fits before a final zero byte, cut between characters.
void copy_line(char* to, size_t capacity, std::string_view text) noexcept;

}  // namespace gangway

// Texts as the C ABI hands them out: one line of UTF-8, whatever a caller put into it.
//
// Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace gangway {

// In place and of the same length: a control character becomes a space, a byte that is not UTF-8 a question mark.
void make_line(std::string& text) noexcept;
// As much of `text` as fits before a final zero, cut between characters.
void put_line(char* to, size_t capacity, std::string_view text) noexcept;

}  // namespace gangway

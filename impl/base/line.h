// Makes the texts that the C ABI returns, one line of UTF-8 whatever a caller's strings contain, paths as
// texts of JSON, and untrusted texts for an error message.
//
// Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace gangway {

// Cleans `text` in place and keeps its length: a control character becomes a space, and a byte that is not
// UTF-8 becomes a question mark.
void sanitize_line(std::string& text) noexcept;
// Copies as much of `text` as fits before a final zero byte, cut between characters.
void copy_line(char* to, size_t capacity, std::string_view text) noexcept;

// Returns the text without the spaces, tabs and carriage returns at its ends.
std::string_view trimmed(std::string_view text);

// Makes untrusted text safe for one line of an error message: the first 80 bytes, in quotes, with quotes,
// backslashes, control characters and bytes over 126 as \xNN.
std::string printable(std::string_view text);

// A path is bytes, but a text of JSON is UTF-8. Returns the path with each byte that is not UTF-8 written as
// U+0000 and two hex digits; a path itself has no zero byte.
std::string path_to_utf8(std::string_view path);
// Returns the path of such a text; nothing if a U+0000 is not followed by two hex digits in lower case.
std::optional<std::string> path_from_utf8(std::string_view text);

}  // namespace gangway

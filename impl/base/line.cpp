#include "base/line.h"

#include <algorithm>
#include <cstring>

namespace gangway {
namespace {

bool continues(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

// Returns the number of bytes of the character at the start of `rest` (Unicode 15, table 3-7), or 0 if no
// valid character starts there.
size_t character(std::string_view rest) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(rest[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || rest.size() < bytes) return 0;
  for (size_t i = 1; i < bytes; ++i)
    if (!continues(rest[i])) return 0;
  const bool overlong = (first == 0xe0 && byte(1) < 0xa0) || (first == 0xf0 && byte(1) < 0x90);
  const bool outside =
      // Surrogates, and code points above U+10FFFF.
      (first == 0xed && byte(1) > 0x9f) || (first == 0xf4 && byte(1) > 0x8f);
  return overlong || outside ? 0 : bytes;
}

}  // namespace

void sanitize_line(std::string& text) noexcept {
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = character(std::string_view(text).substr(at));
    if (bytes == 0) text[at] = '?';
    if (bytes == 1 && (static_cast<unsigned char>(text[at]) < ' ' || text[at] == 0x7f)) text[at] = ' ';
    at += std::max<size_t>(1, bytes);
  }
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r";
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

std::string printable(std::string_view text) {
  constexpr char kHex[] = "0123456789abcdef";
  constexpr size_t kMost = 80;
  std::string out = "\"";
  for (const char c : text.substr(0, kMost)) {
    const unsigned char byte = static_cast<unsigned char>(c);
    if (byte >= 32 && byte < 127 && c != '"' && c != '\\') {
      out += c;
    } else {
      out += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  return out + (text.size() > kMost ? "...\"" : "\"");
}

std::string path_to_utf8(std::string_view path) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string text;
  for (size_t at = 0; at < path.size();) {
    const size_t bytes = character(path.substr(at));
    const auto byte = static_cast<unsigned char>(path[at]);
    if (bytes == 0)
      text += {'\0', kHex[byte >> 4], kHex[byte & 15]};
    else
      text += path.substr(at, bytes);
    at += std::max<size_t>(1, bytes);
  }
  return text;
}

std::optional<std::string> path_from_utf8(std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string path;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '\0') {
      path += text[at];
      continue;
    }
    if (text.size() - at < 3) return std::nullopt;
    const size_t high = kHex.find(text[at + 1]), low = kHex.find(text[at + 2]);
    if (high == std::string_view::npos || low == std::string_view::npos) return std::nullopt;
    path += static_cast<char>(16 * high + low);
    at += 2;
  }
  return path;
}

void copy_line(char* to, size_t capacity, std::string_view text) noexcept {
  size_t n = std::min(capacity - 1, text.size());
  if (n < text.size())
    while (n > 0 && continues(text[n])) --n;
  std::memcpy(to, text.data(), n);
  to[n] = 0;
}

}  // namespace gangway

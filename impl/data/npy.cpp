#include "data/npy.h"

#include <charconv>
#include <cstring>
#include <iterator>
#include <string>

#include "base/error.h"

namespace gangway::data {
namespace {

constexpr uint64_t kLongestHeader = 1 << 16;

[[noreturn]] void refuse(const FileFacts& file, const std::string& header) {
  fail(Code::corrupt, "data: ", file.path, " has a header that is not NumPy's: ", header.substr(0, 120));
}

// Returns what follows 'key': in the header, which is a dictionary of Python.
std::string value_of(const FileFacts& file, const std::string& header, const char* key) {
  const size_t at = header.find(std::string("'") + key + "':");
  if (at == std::string::npos) refuse(file, header);
  const size_t first = header.find_first_not_of(' ', at + std::strlen(key) + 3);
  return first == std::string::npos ? "" : header.substr(first);
}

TokenType type_of(const FileFacts& file, const std::string& value) {
  // The text is '<u2' with its quotes.
  const size_t end = value.find('\'', 1);
  if (value.empty() || value[0] != '\'' || end == std::string::npos) refuse(file, value);
  const std::string descr = value.substr(1, end - 1);
  const char* const kNames[] = {"u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8"};
  for (size_t i = 0; i < std::size(kNames); ++i)
    if (descr == std::string(i < 2 ? "|" : "<") + kNames[i]) return static_cast<TokenType>(i);
  fail(Code::not_supported, "data: ", file.path, " has elements of type '", descr,
       "'; tokens are little-endian integers ('<u2' and the like)");
}

uint64_t count_of(const FileFacts& file, const std::string& value) {
  uint64_t count = 0;
  const char* const end = value.data() + value.size();
  if (value.empty() || value[0] != '(') refuse(file, value);
  const auto [next, error] = std::from_chars(value.data() + 1, end, count);
  // One dimension is written as (5,) with nothing between the comma and the bracket.
  if (error != std::errc() || end - next < 2 || next[0] != ',' || next[1] != ')')
    fail(Code::not_supported, "data: ", file.path, " has the shape ",
         value.substr(0, value.find(')') + 1).substr(0, 60), "; tokens have one dimension");
  return count;
}

}  // namespace

NpyHeader read_npy_header(OpenFiles& files, const FileFacts& file) {
  unsigned char start[12] = {};
  if (file.bytes < sizeof start)
    fail(Code::corrupt, "data: ", file.path, " is truncated: its ", file.bytes,
         " bytes are fewer than a header of NumPy");
  files.read(file, 0, start, sizeof start);
  if (std::memcmp(start, "\x93NUMPY", 6) != 0 || start[6] < 1 || start[6] > 3)
    fail(Code::corrupt, "data: ", file.path, " does not begin as a file of NumPy, versions 1 to 3");
  const bool is_short = start[6] == 1;
  const uint64_t at = is_short ? 10 : 12;
  uint64_t length = static_cast<uint64_t>(start[8]) | static_cast<uint64_t>(start[9]) << 8;
  if (!is_short) length |= static_cast<uint64_t>(start[10]) << 16 | static_cast<uint64_t>(start[11]) << 24;
  if (length > kLongestHeader || at + length > file.bytes)
    fail(Code::corrupt, "data: ", file.path, " is truncated: its header should have ", length,
         " bytes, and the file has ", file.bytes);
  std::string header(static_cast<size_t>(length), '\0');
  files.read(file, at, header.data(), header.size());
  NpyHeader found;
  found.type = type_of(file, value_of(file, header, "descr"));
  found.count = count_of(file, value_of(file, header, "shape"));
  found.first_byte = at + length;
  return found;
}

}  // namespace gangway::data

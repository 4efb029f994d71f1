#include "base/line.h"

#include <gtest/gtest.h>

#include <cstring>
#include <iterator>

#include "base/error.h"

namespace gangway {
namespace {

std::string line(std::string text) {
  sanitize_line(text);
  return text;
}

TEST(Line, ControlCharactersBecomeSpaces) {
  EXPECT_EQ(line(""), "");
  EXPECT_EQ(line("a\nb\r\n\tc\x7f"), "a b   c ");
}

TEST(Line, WellFormedCharactersOfEveryLengthStay) {
  const std::string all =
      "z \xc3\xa4 \xe2\x82\xac \xf0\x9f\x9a\x80 \xed\x9f\xbf \xee\x80\x80 \xf4\x8f\xbf\xbf";
  EXPECT_EQ(line(all), all);
}

TEST(Line, BytesThatAreNoCharactersBecomeQuestionMarks) {
  EXPECT_EQ(line("\xff"), "?");
  EXPECT_EQ(line("a\xc3"), "a?");                      // cut off
  EXPECT_EQ(line("\xc3(\xa4"), "?(?");                 // no continuation, and one alone
  EXPECT_EQ(line("\xc0\xaf"), "??");                   // longer than it needs to be
  EXPECT_EQ(line("\xe0\x9f\xbf"), "???");              // likewise
  EXPECT_EQ(line("\xed\xa0\x80"), "???");              // half of a pair of UTF-16
  EXPECT_EQ(line("\xf4\x90\x80\x80 \xf5"), "???? ?");  // past the last plane
}

TEST(Line, IsCutBetweenCharacters) {
  const std::string text = "ab\xc3\xa4\xe2\x82\xac";  // 1, 1, 2 and 3 bytes
  const size_t whole[] = {0, 1, 2, 2, 4, 4, 4, 7, 7};
  for (size_t capacity = 1; capacity <= std::size(whole); ++capacity) {
    char to[16];
    std::memset(to, 'x', sizeof to);
    copy_line(to, capacity, text);
    EXPECT_EQ(std::string(to), text.substr(0, whole[capacity - 1])) << capacity;
    EXPECT_EQ(to[capacity], 'x');
  }
}

TEST(Line, AnErrorsTextIsOneLine) {
  const Error error(Code::io, "two\nlines \xff");
  EXPECT_EQ(error.message(), "two lines ?");
}

TEST(Printable, IsQuotedAsciiOfAtMost80Bytes) {
  EXPECT_EQ(printable(""), "\"\"");
  EXPECT_EQ(printable("a b~"), "\"a b~\"");
  EXPECT_EQ(printable("\"\\\n\x7f\xc3\xa4"), R"("\x22\x5c\x0a\x7f\xc3\xa4")");
  EXPECT_EQ(printable(std::string(80, 'x')), "\"" + std::string(80, 'x') + "\"");
  EXPECT_EQ(printable(std::string(81, 'x')), "\"" + std::string(80, 'x') + "...\"");
}

TEST(PathText, IsUtf8AndGivesTheSamePath) {
  for (const std::string& path :
       {std::string(), std::string("plain"), std::string("\xc5\xbc\xf0\x9f\x90\xa2"), std::string("caf\xe9"),
        std::string("\xff\xfe/\xc5"), std::string("a\nb\\")})
    EXPECT_EQ(path_from_utf8(path_to_utf8(path)), path);
  EXPECT_EQ(path_to_utf8("caf\xe9.x"), std::string("caf\0e9.x", 8));
  EXPECT_EQ(path_to_utf8("\xc5\xbc"), "\xc5\xbc");
  for (const std::string& text : {std::string("\0", 1), std::string("\0e", 2), std::string("\0E9", 3)})
    EXPECT_EQ(path_from_utf8(text), std::nullopt);
}

}  // namespace
}  // namespace gangway

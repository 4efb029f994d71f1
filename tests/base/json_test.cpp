// Reading JSON as events, and writing it.
#include "base/json.h"

#include <gtest/gtest.h>

#include "base/expect_error.h"
#include "base/json_scalars.h"

namespace gangway {
namespace {

using test::expect_error;

// Writes every event down; stops at the event `last`.
class Recorder final : public JsonEvents {
 public:
  explicit Recorder(std::string last = "") : last_(std::move(last)) {}
  bool null() override { return add("null"); }
  bool boolean(bool value) override { return add(value ? "true" : "false"); }
  bool integer(int64_t value) override { return add("i" + std::to_string(value)); }
  bool unsigned_integer(uint64_t value) override { return add("u" + std::to_string(value)); }
  bool real(double value, const std::string& token) override {
    char digits[40];
    std::snprintf(digits, sizeof digits, "%.17g", value);
    return add("r" + std::string(digits) + "=" + token);
  }
  bool string(const std::string& value) override { return add("'" + value + "'"); }
  bool start_object() override { return add("{"); }
  bool key(const std::string& key) override { return add(key + ":"); }
  bool end_object() override { return add("}"); }
  bool start_list() override { return add("["); }
  bool end_list() override { return add("]"); }
  void parse_error(JsonFault fault, size_t position) override {
    const char* const names[] = {"syntax", "zero byte", "byte order mark"};
    add(names[static_cast<int>(fault)] + std::string(" at ") + std::to_string(position));
  }

  std::string all;

 private:
  bool add(const std::string& event) {
    all += (all.empty() ? "" : " ") + event;
    return event != last_;
  }
  std::string last_;
};

// Returns the events of a text; behind them a "!" if it was refused.
std::string events(std::string_view json, const std::string& last = "") {
  Recorder recorder(last);
  const bool read = read_json(json, recorder);
  return recorder.all + (read ? "" : "!");
}

TEST(JsonEvents, ComeInTheOrderOfTheText) {
  EXPECT_EQ(events(R"( {"a": [1, -2, 0.5], "": {"b": null}, "c": [true, false, {}, []], "a": "x"} )"),
            "{ a: [ u1 i-2 r0.5=0.5 ] : { b: null } c: [ true false { } [ ] ] a: 'x' }");
  EXPECT_EQ(events("7"), "u7");
  EXPECT_EQ(events("\"\""), "''");
}

TEST(JsonEvents, NumbersThatNoIntegerHoldsAreReal) {
  EXPECT_EQ(events("[9223372036854775807, -9223372036854775808]"),
            "[ u9223372036854775807 i-9223372036854775808 ]");
  EXPECT_EQ(events("[18446744073709551615, 18446744073709551616]"),
            "[ u18446744073709551615 r1.8446744073709552e+19=18446744073709551616 ]");
  EXPECT_EQ(events("-9223372036854775809"), "r-9.2233720368547758e+18=-9223372036854775809");
  EXPECT_EQ(events("[1e-5, 0.1, 1E2, -0, -0.0, 4.9e-324]"),
            "[ r1.0000000000000001e-05=1e-5 r0.10000000000000001=0.1 r100=1E2 i0 r-0=-0.0 "
            "r4.9406564584124654e-324=4.9e-324 ]");
}

TEST(JsonEvents, TextsAreUnescaped) {
  EXPECT_EQ(events(R"("\"\\\/\b\f\n\r\t")"), "'\"\\/\b\f\n\r\t'");
  EXPECT_EQ(events(R"("\u00e4\u20AC\ud83d\ude80")"), "'\xc3\xa4\xe2\x82\xac\xf0\x9f\x9a\x80'");
  EXPECT_EQ(events("\"\xf0\x9f\x9a\x80\""), "'\xf0\x9f\x9a\x80'");
  EXPECT_EQ(events(R"("\u0000")"), std::string("'\0'", 3));  // an escape, no zero byte of the text
}

TEST(JsonEvents, OneThatReturnsFalseIsTheLast) {
  EXPECT_EQ(events("[1, 2, 3]", "u2"), "[ u1 u2!");
  EXPECT_EQ(events("{\"a\": 1} x", "a:"), "{ a:!");
  EXPECT_EQ(events("[]", "]"), "[ ]!");
}

TEST(JsonEvents, SaysWhereATextIsNotJson) {
  EXPECT_EQ(events(""), "syntax at 1!");
  EXPECT_EQ(events("{} x"), "{ } syntax at 4!");
  EXPECT_EQ(events("[1,]"), "[ u1 syntax at 4!");
  EXPECT_EQ(events("{\"a\" 1}"), "{ a: syntax at 6!");
  EXPECT_EQ(events("[nul]"), "[ syntax at 5!");
  for (const char* const bad :
       {"[",      "[1",        "{\"a\":",   "{1:2}", "[01]",    "[1.]", "[.5]",    "[+1]",
        "[1e]",   "NaN",       "Infinity",  "'a'",   "// a\n1", "{}{}", "[1e999]", "\"a",
        "\"\n\"", R"("\x41")", R"("\u12")", "]",     "}",       ",",    ":"})
    EXPECT_NE(events(bad).find("syntax at "), std::string::npos) << bad;
}

TEST(JsonEvents, RefusesTextsThatAreNotUtf8AndHalfSurrogates) {
  for (const char* const bad :
       {"\"\xff\"", "\"\xc3\"", "\"\xc0\xaf\"", "\"\xed\xa0\x80\"", "\"\xf4\x90\x80\x80\"", "{\"\xff\":1}",
        R"("\ud83d")", R"("\ude80")", R"("\ud83dx")", R"("\ud83d\u0041")"}) {
    EXPECT_NE(events(bad).find("syntax at "), std::string::npos) << bad;
    EXPECT_FALSE(is_json(bad)) << bad;
  }
}

TEST(JsonEvents, AZeroByteAnywhereIsFoundBeforeTheFirstEvent) {
  EXPECT_EQ(events(std::string_view("{}\0", 3)), "zero byte at 2!");
  EXPECT_EQ(events(std::string_view("{}\0{]", 5)), "zero byte at 2!");
  EXPECT_EQ(events(std::string_view("\0{}", 3)), "zero byte at 0!");
  EXPECT_EQ(events(std::string_view("[\"a\0\"]", 6)), "zero byte at 3!");
}

TEST(JsonEvents, AByteOrderMarkIsRefused) {
  EXPECT_EQ(events("\xef\xbb\xbf{}"), "byte order mark at 0!");
  EXPECT_EQ(events("\xef\xbb"), "syntax at 3!");
  EXPECT_EQ(events("\xef\xbb{}"), "syntax at 3!");
}

TEST(JsonEvents, AMillionLevelsTakeNoStack) {
  const size_t deep = 1'000'000;
  EXPECT_TRUE(is_json(std::string(deep, '[') + std::string(deep, ']')));
  EXPECT_FALSE(is_json(std::string(deep, '[')));
}

TEST(JsonString, IsOneTextAndNothingElse) {
  EXPECT_EQ(json_string(R"("a\u0041")"), "aA");
  EXPECT_EQ(json_string("\"\""), "");
  EXPECT_EQ(json_string("\"a\" "), "a");
  for (const char* const none : {"", "a", "1", "null", "[\"a\"]", " \"a\"", "\"a\"b", "\"a", "\"\\\""})
    EXPECT_EQ(json_string(none), std::nullopt) << none;
  EXPECT_EQ(json_string(std::string_view("\"a\"\0", 4)), std::nullopt);
}

// Files that earlier releases wrote are compared byte by byte, so the digits may not change.
TEST(JsonScalar, NumbersKeepTheirDigits) {
  EXPECT_EQ(json_scalar(0.0), "0.0");
  EXPECT_EQ(json_scalar(-0.0), "-0.0");
  EXPECT_EQ(json_scalar(1.0), "1.0");
  EXPECT_EQ(json_scalar(0.1), "0.1");
  EXPECT_EQ(json_scalar(1e-5), "1e-05");
  EXPECT_EQ(json_scalar(0.0001), "0.0001");
  EXPECT_EQ(json_scalar(1.0 / 3), "0.3333333333333333");
  EXPECT_EQ(json_scalar(500000.0), "500000.0");
  EXPECT_EQ(json_scalar(123456789012345.0), "123456789012345.0");
  EXPECT_EQ(json_scalar(1e15), "1e+15");
  EXPECT_EQ(json_scalar(1e300), "1e+300");
  EXPECT_EQ(json_scalar(4.9406564584124654e-324), "5e-324");
  EXPECT_EQ(json_scalar(static_cast<double>(0.1f)), "0.10000000149011612");
  EXPECT_EQ(json_scalar(HUGE_VAL), "null");
  EXPECT_EQ(json_scalar(std::nan("")), "null");
  EXPECT_EQ(json_scalar(-7), "-7");
  EXPECT_EQ(json_scalar(INT64_MIN), "-9223372036854775808");
  EXPECT_EQ(json_scalar(UINT64_MAX), "18446744073709551615");
  EXPECT_EQ(json_scalar(true), "true");
}

TEST(JsonScalar, TextsAreEscaped) {
  EXPECT_EQ(json_scalar("a/b"), "\"a/b\"");  // a text, no boolean
  EXPECT_EQ(json_scalar(std::string("\"\\\b\f\n\r\t\x01\x7f")), "\"\\\"\\\\\\b\\f\\n\\r\\t\\u0001\x7f\"");
  EXPECT_EQ(json_scalar(std::string_view("\0\xc3\xa4", 3)), "\"\\u0000\xc3\xa4\"");
}

TEST(JsonScalar, ATextThatIsNotUtf8IsRefused) {
  for (const char* const bad : {"\xff", "a\xc3", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80"}) {
    EXPECT_THROW(json_scalar(bad), NotUtf8);
    EXPECT_THROW(JsonObject(0).add(bad, "1"), NotUtf8);
    EXPECT_THROW(json_list(std::vector<std::string>{"a", bad}), NotUtf8);
  }
}

std::string object(size_t indent) {
  JsonObject json(indent);
  json.add("a", "1");
  json.add("b\n", json_list(std::vector<double>{0.5, 2}));
  return std::move(json).close();
}

TEST(JsonObject, HasALineForEachKeyIfItIsIndented) {
  EXPECT_EQ(object(0), R"({"a":1,"b\n":[0.5, 2.0]})");
  EXPECT_EQ(object(2), "{\n  \"a\": 1,\n  \"b\\n\": [0.5, 2.0]\n}");
  EXPECT_EQ(object(4), "{\n    \"a\": 1,\n    \"b\\n\": [0.5, 2.0]\n  }");
  EXPECT_EQ(JsonObject(0).close(), "{}");
  EXPECT_EQ(json_list(std::vector<int64_t>()), "[]");
}

TEST(IndentedJson, HasALineForEachKeyAndElement) {
  EXPECT_EQ(
      indented_json(R"({"b":[1,-2,1E-5,[]],"a":{"x":"\u00e4\/","y":{}},"b":null})", 0),
      "{\n  \"b\": [\n    1,\n    -2,\n    1e-05,\n    []\n  ],\n  \"a\": {\n    \"x\": \"\xc3\xa4/\",\n"
      "    \"y\": {}\n  },\n  \"b\": null\n}");
  EXPECT_EQ(indented_json("[true, [false]]", 2), "[\n    true,\n    [\n      false\n    ]\n  ]");
  EXPECT_EQ(indented_json(" 1.50 ", 2), "1.5");
  expect_error(Code::corrupt, "a text is not JSON", [] { indented_json("[1", 0); });
}

TEST(JsonScalars, SaysWhyATextIsRefused) {
  const auto refused = [](const std::string& json, const std::string& why) {
    expect_error(Code::corrupt, "f: " + why, [&] { read_json_scalars(json, "f"); });
    EXPECT_EQ(find_json_scalars(json), std::nullopt) << json;
  };
  refused("{", "it is not JSON at byte 2");
  refused(std::string("{}\0", 3), "it is not JSON at its byte 2");
  refused("\xef\xbb\xbf{}", "it is not JSON: a byte order mark");
  refused("[]", "it is no JSON object");
  refused("1", "it is no JSON object");
  refused(R"({"a": 1, "a": 2})", "\"a\" stands there twice");
  refused(R"({"a":[[[[[[[[1]]]]]]]]})", "it is nested over 8 deep");
}

TEST(JsonScalars, AreFoundByKeyAndSubkey) {
  const std::optional<JsonScalars> found =
      find_json_scalars(R"({"a": 1, "b": {"c": "x", "d": {"e": 0.5}}, "n": 18446744073709551615})");
  ASSERT_TRUE(found);
  EXPECT_EQ(find_scalar(*found, "a")->integer, 1);
  EXPECT_EQ(find_scalar(*found, "b", "c")->text, "x");
  EXPECT_EQ(find_scalar(*found, "b", "d.e")->real, 0.5);
  EXPECT_FALSE(find_scalar(*found, "b")->is_number());
  EXPECT_EQ(find_scalar(*found, "n")->kind, JsonValue::Kind::real);
  EXPECT_EQ(find_scalar(*found, "n")->text, "18446744073709551615");
  EXPECT_EQ(find_scalar(*found, "c"), nullptr);
}

TEST(JsonMembers, AreTextsInTheirOrder) {
  const JsonMembers members = json_members(R"( {"b" : [1, {"x": "]}"}] ,"\u0061":"\"","c":-1.50 } )", "f");
  EXPECT_EQ(members, (JsonMembers{{"b", R"([1, {"x": "]}"}])"}, {"a", R"("\"")"}, {"c", "-1.50"}}));
  EXPECT_EQ(*find_member(members, "c"), "-1.50");
  EXPECT_EQ(find_member(members, "d"), nullptr);
  EXPECT_TRUE(json_members("{ }", "f").empty());
}

TEST(JsonMembers, LooksAtTheOutermostKeysAlone) {
  const std::string nested = R"({"a":{"x":1,"x":2,"":0},"a.x":3})";
  EXPECT_EQ(json_members(nested, "f").size(), 2u);
  const auto refused = [](const std::string& json, const std::string& why) {
    expect_error(Code::corrupt, "f: " + why, [&] { json_members(json, "f"); });
  };
  refused(R"({"a": 1, "\u0061": 2})", "\"a\" stands there twice");
  refused("[{}]", "it is no JSON object");
  refused("\"{\"", "it is no JSON object");
  refused("{} {", "it is not JSON at byte 4");
  refused(std::string("{}\0", 3), "it is not JSON at its byte 2");
  const auto deep = [](size_t levels) {
    return "{\"a\":" + std::string(levels - 1, '[') + std::string(levels - 1, ']') + "}";
  };
  EXPECT_EQ(json_members(deep(64), "f").size(), 1u);
  refused(deep(65), "it is nested over 64 deep");
}

}  // namespace
}  // namespace gangway

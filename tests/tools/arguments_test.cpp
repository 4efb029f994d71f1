// Command lines as data: where values go, what is refused, and what is printed. CLI11 words the refusals, and
// its releases differ in that, so these tests look for names and numbers in them.
#include <gtest/gtest.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "tools/arguments.h"

namespace gangway::tools {
namespace {

struct Outcome {
  std::optional<int> status;
  std::string out, err;

  bool says(const std::string& words) const { return (out + err).find(words) != std::string::npos; }
};

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> all;
  for (std::string& word : words) all.push_back(word.data());
  return all;
}

Outcome read(const CommandLine& line, std::vector<std::string> words) {
  words.insert(words.begin(), "tool");
  std::vector<char*> all = pointers(words);
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  Outcome outcome;
  outcome.status = read_arguments(line, static_cast<int>(all.size()), all.data());
  outcome.out = testing::internal::GetCapturedStdout();
  outcome.err = testing::internal::GetCapturedStderr();
  return outcome;
}

struct Values {
  bool flag = false;
  int count = 7;
  int64_t large = -1;
  uint64_t bytes = 1000;
  double part = 0.5;
  std::string word = "none", kind = "slow", last, read_by_function;
  std::vector<std::string> files;

  void read(const std::string& text) {
    if (text == "bad") throw std::invalid_argument("the reader refuses " + text);
    read_by_function = text;
  }
};

std::vector<Option> options_of(Values& v) {
  return {
      {"--version", Version{"1.2.3"}},
      {"files", &v.files, "positional", {.required = true}},
      {"-f,--flag", &v.flag, "a flag"},
      {"--count", &v.count, "so many", {.must = Integers{1, 8}, .default_shown = true, .type = "COUNT"}},
      {"--large", &v.large, "a large number", {.must = NotNegative{}}},
      {"--bytes", &v.bytes, "a size", {.must = Bytes{}}},
      {"--part", &v.part, "a part", {.must = Numbers{0.25, 1}}},
      {"--word", &v.word, "a word", {.excludes = {"--part", "-f", "--count"}}},
      {"--kind", &v.kind, "one of two", {.must = OneOf{{"slow", "fast"}}}},
      {"--last", &v.last, "the last counts", {.last_counts = true}},
      {"--reader", [&v](const std::string& text) { v.read(text); }, "read by a function", {.needs = {"-f"}}},
      {"--secret", &v.last, "not shown", {.hidden = true}},
      {"--nothing", Nothing{}, "means nothing"},
  };
}

CommandLine line_of(Values& v) { return {"tool", "What the tool does.", options_of(v)}; }

TEST(Arguments, EachValueGoesToItsTarget) {
  Values v;
  const Outcome o = read(
      line_of(v), {"a", "--count", "8", "-f", "--large=5000000000", "--bytes", "2KiB", "--part", "0.25",
                   "--kind", "fast", "--last", "x", "--last", "y", "--reader", "text", "--nothing", "b"});
  EXPECT_EQ(o.status, std::nullopt) << o.err;
  EXPECT_EQ(o.out + o.err, "");
  EXPECT_EQ(v.files, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(v.count, 8);
  EXPECT_TRUE(v.flag);
  EXPECT_EQ(v.large, 5'000'000'000);
  EXPECT_EQ(v.bytes, 2048u);
  EXPECT_EQ(v.part, 0.25);
  EXPECT_EQ(v.word, "none");
  EXPECT_EQ(v.kind, "fast");
  EXPECT_EQ(v.last, "y");
  EXPECT_EQ(v.read_by_function, "text");
}

TEST(Arguments, ARefusalSaysWhatIsWrongAndIsStatusTwo) {
  struct Row {
    std::vector<std::string> words;
    std::string text;
  };
  for (const Row& row : std::vector<Row>{{{}, "files is required"},
                                         {{"a", "--unknown"}, "--unknown"},
                                         {{"a", "--count"}, "--count"},
                                         {{"a", "--count", "0"}, "--count: Value 0 not in range"},
                                         {{"a", "--count", "9"}, "--count: Value 9 not in range"},
                                         {{"a", "--count", "x"}, "--count: Value x not in range"},
                                         {{"a", "--count", "1", "--count", "2"}, "--count"},
                                         {{"a", "--large", "-1"}, "--large: "},
                                         {{"a", "--bytes", "2XB"}, "--bytes: "},
                                         {{"a", "--part", "0.2"}, "--part: Value 0.2 not in range"},
                                         {{"a", "--kind", "odd"}, "--kind: odd not in {slow,fast}"},
                                         {{"a", "--word", "w", "--part", "1"}, "--part excludes --word"},
                                         {{"a", "-f", "--reader", "bad"}, "the reader refuses bad"},
                                         {{"a", "--reader", "text"}, "--reader requires --flag"}}) {
    Values v;
    const Outcome o = read(line_of(v), row.words);
    EXPECT_EQ(o.status, 2) << row.text;
    EXPECT_TRUE(o.says(row.text)) << row.text << " is not in: " << o.err;
    EXPECT_TRUE(o.says("Run with --help for more information.\n")) << o.err;
    EXPECT_EQ(o.out, "");
  }
}

TEST(Arguments, TheHelpShowsDefaultsTypesAndChoicesAndHidesWhatIsHidden) {
  Values v;
  const Outcome o = read(line_of(v), {"--help"});
  EXPECT_EQ(o.status, 0);
  EXPECT_EQ(o.err, "");
  for (const char* const words :
       {"What the tool does.\n", "Usage: tool [OPTIONS] files...", "-f,--flag", "--count COUNT", "7",
        "so many", "{slow,fast}", "--version", "Excludes: --flag --count --part\n"})
    EXPECT_TRUE(o.says(words)) << words << " is not in: " << o.out;
  EXPECT_FALSE(o.says("--secret")) << o.out;
  EXPECT_EQ(read(line_of(v), {"--version"}).out, "1.2.3\n");
}

TEST(Arguments, OneCommandMustBeGivenAndIsNamed) {
  int number = 0;
  std::string command;
  const CommandLine line = {
      "tool", "", {}, {{"list", "lists", {}}, {"show", "shows", {{"number", &number, ""}}}}, &command};
  EXPECT_EQ(read(line, {"show", "7"}).status, std::nullopt);
  EXPECT_EQ(command, "show");
  EXPECT_EQ(number, 7);
  EXPECT_TRUE(read(line, {"show", "--help"}).says("number")) << "the help of a command is its own";
  for (const std::vector<std::string>& words : {std::vector<std::string>{}, {"list", "show"}, {"other"}})
    EXPECT_EQ(read(line, words).status, 2);
}

TEST(Arguments, WordsFromTheFirstThatNoOptionTakesAreTheRest) {
  bool flag = false;
  std::vector<std::string> rest;
  CommandLine line = {"tool", "", {{"--flag", &flag}}};
  line.rest = &rest;
  line.check = [&] {
    if (rest.empty()) throw std::invalid_argument("nothing is left");
  };
  EXPECT_EQ(read(line, {"--flag", "program", "--flag", "--other"}).status, std::nullopt);
  EXPECT_EQ(rest, (std::vector<std::string>{"program", "--flag", "--other"}));
  const Outcome o = read(line, {"--flag"});
  EXPECT_EQ(o.status, 2);
  EXPECT_EQ(o.err, "nothing is left\nRun with --help for more information.\n");
}

TEST(Arguments, PartsAreReadInOrderAndTheHelpIsThatOfTheFirst) {
  int first = 0, second = 0;
  std::vector<std::string> one = {"tool", "--first", "1"}, two = {"tool", "--second", "2"},
                           help = {"tool", "--help"};
  const CommandLine begin = {"tool", "The first.", {{"--first", &first}}};
  const CommandLine next = {"tool", "The second.", {{"--second", &second}}};
  EXPECT_EQ(read_arguments({{begin, pointers(one)}, {next, pointers(two)}}), std::nullopt);
  EXPECT_EQ(first, 1);
  EXPECT_EQ(second, 2);
  testing::internal::CaptureStdout();
  EXPECT_EQ(read_arguments({{begin, pointers(one)}, {next, pointers(help)}}), 0);
  EXPECT_EQ(testing::internal::GetCapturedStdout().substr(0, 10), "The first.");
}

}  // namespace
}  // namespace gangway::tools

// The command line of a tool as data: a table of options, which one function reads. arguments.cpp alone
// includes CLI11, because a compiler works ten seconds on that library.
//
// Thread rule: functions.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace gangway::tools {

constexpr int kUsage = 2;  // exit status of a wrong command line

struct Nothing {};  // a flag that means nothing
struct Version {    // a flag that prints this text
  std::string text;
};
using Reader = std::function<void(const std::string&)>;  // std::invalid_argument: the word is wrong

// Where the value of an option goes. A bool makes the option a flag.
using Target = std::variant<Nothing, Version, bool*, int*, int64_t*, uint64_t*, double*, std::string*,
                            std::vector<std::string>*, Reader>;

struct Anything {};
struct Positive {};
struct NotNegative {};
struct Bytes {};  // "5GB" are 5'000'000'000, "1GiB" are 2^30
struct Integers {
  int64_t least, most;
};
struct Numbers {
  double least, most;
};
struct OneOf {
  std::vector<std::string> words;
};
using Condition = std::variant<Anything, Positive, NotNegative, Bytes, Integers, Numbers, OneOf>;

struct Rules {
  Condition must = Anything{};
  bool required = false;
  bool default_shown = false;  // in the help
  bool hidden = false;         // from the help
  bool last_counts = false;    // when it is given several times, which is wrong otherwise
  std::string type = {};       // in the help; empty: that of the target
  std::vector<std::string> excludes = {}, needs = {};  // names of other options of the same table
};

struct Option {
  std::string names;  // "-m,--module"; without "-" it is a positional argument
  Target to;
  std::string text = {};
  Rules rules = {};
};

struct CommandLine {
  std::string name;  // empty: as the program was called
  std::string text;
  std::vector<Option> options;
  std::vector<CommandLine> commands = {};    // one of them must be given, if there are any
  std::string* command = nullptr;            // where the name of that goes
  std::vector<std::string>* rest = nullptr;  // where the words go from the first that no option takes
  std::function<void()> check = nullptr;     // of the values; std::invalid_argument: they are wrong
  std::string footer = {};
};

// A part of a command line, with its words. The first word is the name of the program.
struct Part {
  CommandLine line;
  std::vector<char*> words;
};

// Reads the parts in their order. The result is the exit status, if the program ends here: 0 when it has
// printed the help of the first part or its version, kUsage when it has printed what is wrong.
std::optional<int> read_arguments(const std::vector<Part>& parts);
std::optional<int> read_arguments(CommandLine line, int count, char** words);

std::vector<Option> joined(const std::vector<std::vector<Option>>& tables);
// Returns the names of a table.
template <typename Map>
OneOf names_of(const Map& table) {
  OneOf names;
  for (const auto& row : table) names.words.push_back(row.first);
  return names;
}

}  // namespace gangway::tools

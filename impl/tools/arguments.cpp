#include "tools/arguments.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <stdexcept>
#include <utility>

namespace gangway::tools {
namespace {

// CLI11 lists the options that one excludes in the order of their addresses. Here it is that of the table.
class Help : public CLI::Formatter {
 public:
  void add(CLI::Option* option) { options_.push_back(option); }

  std::string make_option_opts(const CLI::Option* option) const override {
    std::string out = CLI::Formatter::make_option_opts(option);
    const std::string label = " " + get_label("Excludes") + ":";
    const size_t at = out.rfind(label);
    if (option->get_excludes().empty() || at == std::string::npos) return out;
    out.resize(at + label.size());
    for (CLI::Option* const other : options_)
      if (option->get_excludes().count(other) != 0) out += " " + other->get_name();
    return out;
  }

 private:
  std::vector<CLI::Option*> options_;
};

// Adds an option by the type of its target.
struct Adding {
  CLI::App& app;
  const Option& option;

  CLI::Option* operator()(Nothing) const { return app.add_flag(option.names)->description(option.text); }
  CLI::Option* operator()(const Version& version) const {
    return app.set_version_flag(option.names, version.text);
  }
  CLI::Option* operator()(bool* to) const { return app.add_flag(option.names, *to, option.text); }
  CLI::Option* operator()(const Reader& reader) const {
    return app.add_option_function<std::string>(option.names, reader, option.text);
  }
  template <typename T>
  CLI::Option* operator()(T* to) const {
    return app.add_option(option.names, *to, option.text);
  }
};

struct Checking {
  CLI::Option& option;

  void operator()(Anything) const {}
  void operator()(Positive) const { option.check(CLI::PositiveNumber); }
  void operator()(NotNegative) const { option.check(CLI::NonNegativeNumber); }
  void operator()(Bytes) const { option.transform(CLI::AsSizeValue(true)); }
  void operator()(Integers range) const { option.check(CLI::Range(range.least, range.most)); }
  void operator()(Numbers range) const { option.check(CLI::Range(range.least, range.most)); }
  void operator()(const OneOf& one) const { option.check(CLI::IsMember(one.words)); }
};

void add(CLI::App& app, const Option& option, Help& help) {
  const Rules& rules = option.rules;
  CLI::Option& added = *std::visit(Adding{app, option}, option.to);
  help.add(&added);
  if (rules.required) added.required();
  if (rules.default_shown) added.capture_default_str();
  std::visit(Checking{added}, rules.must);
  if (rules.hidden) added.group("");
  if (rules.last_counts) added.take_last();
  if (!rules.type.empty()) added.type_name(rules.type);
}

void build(CLI::App& app, const CommandLine& line, Help& help) {
  for (const Option& option : line.options) add(app, option, help);
  for (const Option& option : line.options) {
    const std::string name = option.names.substr(0, option.names.find(','));
    for (const std::string& other : option.rules.excludes)
      app.get_option(name)->excludes(app.get_option(other));
    for (const std::string& other : option.rules.needs) app.get_option(name)->needs(app.get_option(other));
  }
  for (const CommandLine& command : line.commands)
    build(*app.add_subcommand(command.name, command.text), command, help);
  if (!line.commands.empty()) app.require_subcommand(1);
  app.prefix_command(line.rest != nullptr);
  app.footer(line.footer);
}

void read(CLI::App& app, const Part& part) {
  const CommandLine& line = part.line;
  const auto help = std::make_shared<Help>();
  app.formatter(help);
  build(app, line, *help);
  app.parse(static_cast<int>(part.words.size()), part.words.data());
  if (line.command != nullptr) *line.command = app.get_subcommands().front()->get_name();
  if (line.rest != nullptr) *line.rest = app.remaining();
  if (line.check) line.check();
}

}  // namespace

std::optional<int> read_arguments(const std::vector<Part>& parts) {
  CLI::App first(parts[0].line.text, parts[0].line.name);
  const auto end = [&first](const CLI::Error& error) { return first.exit(error) == 0 ? 0 : kUsage; };
  try {
    read(first, parts[0]);
    for (size_t i = 1; i < parts.size(); ++i) {
      CLI::App next(parts[i].line.text, parts[i].line.name);
      read(next, parts[i]);
    }
  } catch (const CLI::ParseError& error) {
    return end(error);
  } catch (const std::invalid_argument& error) {
    return end(CLI::ValidationError(error.what()));
  }
  return std::nullopt;
}

std::optional<int> read_arguments(CommandLine line, int count, char** words) {
  return read_arguments({Part{std::move(line), std::vector<char*>(words, words + count)}});
}

std::vector<Option> joined(const std::vector<std::vector<Option>>& tables) {
  std::vector<Option> all;
  for (const std::vector<Option>& table : tables) all.insert(all.end(), table.begin(), table.end());
  return all;
}

}  // namespace gangway::tools

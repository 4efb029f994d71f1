// gangrun starts a program once for every rank of a gang on this host, or several programs that form one
// gang.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <string_view>

#include "tools/launch.h"

namespace {

constexpr int kUsage = 2;  // exit status of a wrong command line
constexpr int kMostRanks = 4096;

using gangway::tools::LaunchOptions;
using gangway::tools::Program;
using Arguments = std::vector<char*>;

// Splits the command line into one part for each program. A ":" before -n or --ranks begins the next program
// of the gang; any other ":" is an argument of a program. Each part begins with the name of gangrun.
std::vector<Arguments> parts_of(int count, char** arguments) {
  std::vector<Arguments> parts(1);
  for (int i = 0; i < count; ++i) {
    const std::string_view next = i + 1 < count ? arguments[i + 1] : "";
    if (std::string_view(arguments[i]) == ":" && (next.starts_with("-n") || next.starts_with("--ranks")))
      parts.push_back({arguments[0]});
    else
      parts.back().push_back(arguments[i]);
  }
  return parts;
}

void add_program(CLI::App& app, Program& program) {
  app.add_option("-n,--ranks", program.ranks, "number of ranks")
      ->required()
      ->check(CLI::Range(1, kMostRanks));
  app.prefix_command();
}

void parse(CLI::App& app, Arguments& arguments, Program& program) {
  app.parse(static_cast<int>(arguments.size()), arguments.data());
  program.command = app.remaining();
  if (!program.command.empty() && program.command.front() == "--")
    program.command.erase(program.command.begin());
  if (program.command.empty()) throw CLI::ValidationError("no program given");
}

}  // namespace

int main(int count, char** arguments) {
  LaunchOptions options;
  std::vector<Arguments> parts = parts_of(count, arguments);
  options.programs.resize(parts.size());
  bool no_prefix = false;
  CLI::App app(
      "gangrun -n RANKS [options] [--] PROGRAM [arguments] [: -n RANKS [--] PROGRAM [arguments]]...\n"
      "Starts a program once for every rank of a gang on this host and watches over them. With several "
      "programs, those of\n"
      "the first have the lowest ranks.",
      "gangrun");
  add_program(app, options.programs[0]);
  app.add_option("--max-restarts", options.max_restarts,
                 "start the whole job again, at most so often, when a rank fails")
      ->check(CLI::Range(0, 1000000));
  app.add_option("--timeout", options.timeout_s, "end the job after so many seconds")
      ->check(CLI::Range(0.001, 1e9));
  app.add_option("--grace", options.grace_s,
                 "when a rank fails, end the others after so many seconds (2), in which they may say why")
      ->check(CLI::Range(0.0, 1e6));
  app.add_flag("--no-prefix", no_prefix, "leave the ranks' output as it is, without \"[rank] \"");
  app.set_version_flag("--version", GANGWAY_VERSION);
  app.footer(
      "Each rank gets RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT,\n"
      "GANGWAY_SECRET_FD, GANGWAY_JOB and GANGWAY_RESTART_COUNT. When one fails, all others are\n"
      "ended, and the exit status is that of the first that failed (128 + the signal).");
  try {
    parse(app, parts[0], options.programs[0]);
    for (size_t i = 1; i < parts.size(); ++i) {
      CLI::App next("", "gangrun");
      add_program(next, options.programs[i]);
      parse(next, parts[i], options.programs[i]);
    }
    if (options.ranks() > kMostRanks)
      throw CLI::ValidationError("more than " + std::to_string(kMostRanks) + " ranks in all");
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  }
  options.prefix = !no_prefix;
  try {
    return gangway::tools::launch(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gangrun: %s\n", error.what());
    return 1;
  }
}

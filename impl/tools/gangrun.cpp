// gangrun: starts a program once for every rank of a gang on this host.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "tools/launch.h"

constexpr int kUsage = 2;  // exit status of a wrong command line

int main(int count, char** arguments) {
  gangway::tools::LaunchOptions options;
  bool no_prefix = false;
  CLI::App app(
      "gangrun -n RANKS [options] [--] PROGRAM [arguments]\n"
      "Starts a program once for every rank of a gang on this host and watches over them.",
      "gangrun");
  app.add_option("-n,--ranks", options.ranks, "number of ranks")->required()->check(CLI::Range(1, 4096));
  app.add_option("--max-restarts", options.max_restarts,
                 "start the whole job again, at most so often, when a rank fails")
      ->check(CLI::Range(0, 1000000));
  app.add_option("--timeout", options.timeout_s, "end the job after so many seconds")
      ->check(CLI::Range(0.001, 1e9));
  app.add_flag("--no-prefix", no_prefix, "leave the ranks' output as it is, without \"[rank] \"");
  app.set_version_flag("--version", GANGWAY_VERSION);
  app.prefix_command();
  app.footer(
      "Each rank gets RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT,\n"
      "GANGWAY_SECRET_FD, GANGWAY_JOB and GANGWAY_RESTART_COUNT. When one fails, all others are\n"
      "ended, and the exit status is that of the first that failed (128 + the signal).");
  try {
    app.parse(count, arguments);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  }
  options.command = app.remaining();
  if (!options.command.empty() && options.command.front() == "--")
    options.command.erase(options.command.begin());
  options.prefix = !no_prefix;
  if (options.command.empty()) {
    std::fprintf(stderr, "gangrun: no program given\n%s", app.help().c_str());
    return kUsage;
  }
  try {
    return gangway::tools::launch(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gangrun: %s\n", error.what());
    return 1;
  }
}

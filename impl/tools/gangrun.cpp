// gangrun starts a program once for every rank of a gang on this host, or several programs that form one
// gang.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string_view>

#include "tools/hosts.h"
#include "tools/launch.h"
#include "tools/rank_command.h"
#include "tools/rank_count.h"

namespace {

constexpr int kUsage = 2;  // exit status of a wrong command line

using gangway::tools::kMostRanks;
using gangway::tools::LaunchOptions;
using gangway::tools::Program;
using Arguments = std::vector<char*>;

// One program of the command line.
struct Part {
  Program& program;
  gangway::tools::RankCommandOptions options;
  bool has_count = false;
};

// Splits the command line into one part for each program. A ":" before the option for the number of ranks
// begins the next program of the gang; any other ":" is an argument of a program. Each part begins with the
// name of gangrun.
std::vector<Arguments> parts_of(int count, char** arguments) {
  std::vector<Arguments> parts(1);
  for (int i = 0; i < count; ++i) {
    const std::string_view next = i + 1 < count ? arguments[i + 1] : "";
    const bool begins_part =
        next.starts_with("-n") || next.starts_with("--ranks") || next.starts_with("--nproc");
    if (std::string_view(arguments[i]) == ":" && begins_part)
      parts.push_back({arguments[0]});
    else
      parts.back().push_back(arguments[i]);
  }
  return parts;
}

// torchrun's names of the options work, too.
void add_program(CLI::App& app, Part& part) {
  const auto read_count = [&part](const std::string& word) {
    try {
      part.program.ranks = gangway::tools::rank_count(word);
      part.has_count = true;
    } catch (const std::invalid_argument& error) {
      throw CLI::ValidationError(error.what());
    }
  };
  app.add_option_function<std::string>("-n,--ranks,--nproc-per-node,--nproc_per_node", read_count,
                                       "number of ranks; auto: one for each GPU, else for each processor")
      ->type_name("COUNT");
  app.add_flag("-m,--module", part.options.module, "the program is a Python module, as for python3 -m");
  app.add_flag("--no-python,--no_python", part.options.no_python,
               "start a .py file as it is, not under Python");
  app.prefix_command();
}

// The hosts of a gang that does not run on this host alone.
struct HostOptions {
  std::string list, file;
  std::string agent = "ssh -o BatchMode=yes";
};

void add_hosts(CLI::App& app, HostOptions& hosts, gangway::tools::Node& node) {
  app.add_option("--hosts", hosts.list,
                 "start the ranks on these hosts: a,b:2 (2 ranks on b; else as -n says, or 1)")
      ->type_name("LIST");
  app.add_option("--hostfile", hosts.file, "the same from a file with a host in each line")
      ->type_name("FILE");
  app.add_option("--agent", hosts.agent,
                 "the command that runs another on a host; default: ssh -o BatchMode=yes")
      ->type_name("COMMAND");
  // What a gangrun tells those that it starts on other hosts.
  const auto read_node = [&node](const std::string& word) {
    try {
      gangway::tools::read_node(word, node);
    } catch (const std::invalid_argument& error) {
      throw CLI::ValidationError(error.what());
    }
  };
  app.add_option_function<std::string>("--node", read_node, "")->group("");
  app.add_option("--node-master", node.master, "")->group("");
  app.add_option("--node-port", node.port, "")->group("");
  app.add_option("--node-job", node.job, "")->group("");
  app.add_option("--node-restart", node.restart, "")->group("");
}

// Replaces the one program by a remote shell for each host.
void spread(LaunchOptions& options, const HostOptions& hosts, const Part& part, const std::string& python) {
  if (options.programs.size() != 1)
    throw std::invalid_argument("several programs start on this host only, not with --hosts");
  if (!hosts.list.empty() && !hosts.file.empty())
    throw std::invalid_argument("--hosts and --hostfile contradict each other");
  const Program& program = options.programs[0];
  const auto list = hosts.file.empty() ? gangway::tools::read_hosts(hosts.list, program.ranks)
                                       : gangway::tools::read_host_file(hosts.file, program.ranks);
  std::vector<std::string> words = {"--grace=" + std::to_string(options.grace_s),
                                    "--end-grace=" + std::to_string(options.end_grace_s)};
  if (!options.prefix) words.emplace_back("--no-prefix");
  if (part.options.module) words.emplace_back("--module");
  if (part.options.no_python) words.emplace_back("--no-python");
  if (!python.empty()) words.push_back("--python=" + python);
  options.programs = gangway::tools::programs_on(list, hosts.agent, words, program.command);
  options.prefix = false;  // the nodes write it
}

// Options that torchrun needs and gangrun does not.
void add_torchrun(CLI::App& app) {
  const auto check_nodes = [](const std::string& nodes) {
    if (nodes != "1" && nodes != "1:1")
      throw CLI::ValidationError("--nnodes " + nodes +
                                 ": gangrun starts ranks on this host, or on those of --hosts");
  };
  app.add_option_function<std::string>("--nnodes", check_nodes, "1, as for torchrun")->type_name("COUNT");
  app.add_flag("--standalone")->description("as for torchrun; always so");
}

void parse(CLI::App& app, Arguments& arguments, Part& part) {
  app.parse(static_cast<int>(arguments.size()), arguments.data());
  std::vector<std::string>& command = part.program.command;
  command = app.remaining();
  const auto refuse = [](const std::string& text) { throw CLI::ValidationError(text); };
  if (!command.empty() && command.front() == "--")
    command.erase(command.begin());
  else if (!command.empty() && command.front().starts_with("-"))
    refuse("unknown option " + command.front() + " (options of the program come after the program)");
  if (command.empty()) refuse("no program given");
  if (part.options.module && part.options.no_python) refuse("--module and --no-python contradict each other");
}

}  // namespace

int main(int count, char** arguments) {
  LaunchOptions options;
  std::vector<Arguments> parts = parts_of(count, arguments);
  options.programs.resize(parts.size());
  std::vector<Part> programs;
  for (Program& program : options.programs) programs.push_back({program, {}, false});
  bool no_prefix = false, is_spread = false;
  std::string python;
  CLI::App app(
      "gangrun -n RANKS [options] [--] PROGRAM [arguments] [: -n RANKS [--] PROGRAM [arguments]]...\n"
      "Starts a program once for every rank of a gang on this host and watches over them. A .py file runs\n"
      "under Python. With several programs, those of the first have the lowest ranks.",
      "gangrun");
  add_program(app, programs[0]);
  app.add_option("--python", python,
                 "the interpreter of .py files and modules; default: python3 of $VIRTUAL_ENV, else of PATH")
      ->take_last();
  app.add_option("--max-restarts,--max_restarts", options.max_restarts,
                 "start the whole job again, at most so often, when a rank fails")
      ->check(CLI::Range(0, 1000000));
  app.add_option("--timeout", options.timeout_s, "end the job after so many seconds")
      ->check(CLI::Range(0.001, 1e9));
  app.add_option("--grace", options.grace_s,
                 "when a rank fails, end the others after so many seconds (2), in which they may say why")
      ->check(CLI::Range(0.0, 1e6));
  app.add_option("--end-grace", options.end_grace_s,
                 "after SIGINT, SIGTERM or SIGHUP, kill ranks that have not ended in so many seconds (300); "
                 "those that ignore the signal in 5")
      ->check(CLI::Range(0.0, 1e6));
  add_torchrun(app);
  HostOptions hosts;
  add_hosts(app, hosts, options.node);
  app.add_flag("--no-prefix", no_prefix, "leave the ranks' output as it is, without \"[rank] \"");
  app.set_version_flag("--version", GANGWAY_VERSION);
  app.footer(
      "Each rank gets RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT,\n"
      "GANGWAY_SECRET_FD, GANGWAY_JOB and GANGWAY_RESTART_COUNT. When one fails, all others are\n"
      "ended, and the exit status is that of the first that failed (128 + the signal).");
  try {
    parse(app, parts[0], programs[0]);
    for (size_t i = 1; i < parts.size(); ++i) {
      CLI::App next("", "gangrun");
      add_program(next, programs[i]);
      parse(next, parts[i], programs[i]);
    }
    is_spread = !hosts.list.empty() || !hosts.file.empty();
    for (const Part& part : programs)
      if (!part.has_count && !is_spread) throw CLI::RequiredError("--ranks");
    if (options.ranks() > kMostRanks)
      throw CLI::ValidationError("more than " + std::to_string(kMostRanks) + " ranks in all");
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  }
  options.prefix = !no_prefix;
  try {
    if (is_spread) {
      spread(options, hosts, programs[0], python);
      return gangway::tools::launch(options);  // the nodes look for the program
    }
    for (Part& part : programs) {
      part.options.python = python;
      part.program.command = gangway::tools::rank_command(std::move(part.program.command), part.options);
    }
    return gangway::tools::launch(options);
  } catch (const gangway::tools::CannotRun& error) {
    std::fprintf(stderr, "gangrun: %s\n", error.what());
    return error.status;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gangrun: %s\n", error.what());
    return 1;
  }
}

// gangrun starts a program once for every rank of a gang on this host, or several programs that form one
// gang.
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "tools/arguments.h"
#include "tools/hosts.h"
#include "tools/launch.h"
#include "tools/rank_command.h"
#include "tools/rank_count.h"

namespace {

using gangway::tools::CommandLine;
using gangway::tools::Integers;
using gangway::tools::kMostRanks;
using gangway::tools::LaunchOptions;
using gangway::tools::Node;
using gangway::tools::Nothing;
using gangway::tools::Numbers;
using gangway::tools::Option;
using gangway::tools::Program;
using gangway::tools::Version;
using Words = std::vector<char*>;

// One program of the command line.
struct Part {
  Program& program;
  gangway::tools::RankCommandOptions options;
  bool has_count = false;
};

// Splits the command line into one part for each program. A ":" before the option for the number of ranks
// begins the next program of the gang; any other ":" is an argument of a program. Each part begins with the
// name of gangrun.
std::vector<Words> parts_of(int count, char** arguments) {
  std::vector<Words> parts(1);
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
std::vector<Option> program_options(Part& part) {
  const auto read_count = [&part](const std::string& word) {
    part.program.ranks = gangway::tools::rank_count(word);
    part.has_count = true;
  };
  return {
      {"-n,--ranks,--nproc-per-node,--nproc_per_node",
       read_count,
       "number of ranks; auto: one for each GPU, else for each processor",
       {.type = "COUNT"}},
      {"-m,--module", &part.options.module, "the program is a Python module, as for python3 -m"},
      {"--no-python,--no_python", &part.options.no_python, "start a .py file as it is, not under Python"}};
}

// The hosts of a gang that does not run on this host alone.
struct HostOptions {
  std::string list, file;
  std::string agent = "ssh -o BatchMode=yes";

  bool given() const { return !list.empty() || !file.empty(); }
};

std::vector<Option> host_options(HostOptions& hosts) {
  return {{"--hosts",
           &hosts.list,
           "start the ranks on these hosts: a,b:2 (2 ranks on b; else as -n says, or 1)",
           {.type = "LIST"}},
          {"--hostfile", &hosts.file, "the same from a file with a host in each line", {.type = "FILE"}},
          {"--agent",
           &hosts.agent,
           "the command that runs another on a host; default: ssh -o BatchMode=yes",
           {.type = "COMMAND"}}};
}

// What a gangrun tells those that it starts on other hosts.
std::vector<Option> node_options(Node& node) {
  const auto read_node = [&node](const std::string& word) { gangway::tools::read_node(word, node); };
  return {{"--node", read_node, "", {.hidden = true}},
          {"--node-master", &node.master, "", {.hidden = true}},
          {"--node-port", &node.port, "", {.hidden = true}},
          {"--node-job", &node.job, "", {.hidden = true}},
          {"--node-restart", &node.restart, "", {.hidden = true}}};
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
std::vector<Option> torchrun_options() {
  const auto check_nodes = [](const std::string& nodes) {
    if (nodes != "1" && nodes != "1:1")
      throw std::invalid_argument("--nnodes " + nodes +
                                  ": gangrun starts ranks on this host, or on those of --hosts");
  };
  return {{"--nnodes", check_nodes, "1, as for torchrun", {.type = "COUNT"}},
          {"--standalone", Nothing{}, "as for torchrun; always so"}};
}

std::vector<Option> job_options(LaunchOptions& options, std::string& python) {
  return {
      {"--python",
       &python,
       "the interpreter of .py files and modules; default: python3 of $VIRTUAL_ENV, else of PATH",
       {.last_counts = true}},
      {"--max-restarts,--max_restarts",
       &options.max_restarts,
       "start the whole job again, at most so often, when a rank fails",
       {.must = Integers{0, 1000000}}},
      {"--timeout", &options.timeout_s, "end the job after so many seconds", {.must = Numbers{0.001, 1e9}}},
      {"--grace",
       &options.grace_s,
       "when a rank fails, end the others after so many seconds (2), in which they may say why",
       {.must = Numbers{0, 1e6}}},
      {"--end-grace",
       &options.end_grace_s,
       "after SIGINT, SIGTERM or SIGHUP, kill ranks that have not ended in so many seconds (300); "
       "those that ignore the signal in 5",
       {.must = Numbers{0, 1e6}}}};
}

// Everything that the command line says.
struct Request {
  LaunchOptions options;
  std::vector<Part> parts;
  HostOptions hosts;
  std::string python;
  bool no_prefix = false;
};

CommandLine first_line(Request& request) {
  const std::vector<Option> last = {
      {"--no-prefix", &request.no_prefix, "leave the ranks' output as it is, without \"[rank] \""},
      {"--version", Version{GANGWAY_VERSION}}};
  return {.name = "gangrun",
          .text =
              "gangrun -n RANKS [options] [--] PROGRAM [arguments] [: -n RANKS [--] PROGRAM [arguments]]...\n"
              "Starts a program once for every rank of a gang on this host and watches over them. A .py file "
              "runs\n"
              "under Python. With several programs, those of the first have the lowest ranks.",
          .options = gangway::tools::joined(
              {program_options(request.parts[0]), job_options(request.options, request.python),
               torchrun_options(), host_options(request.hosts), node_options(request.options.node), last}),
          .footer =
              "Each rank gets RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT,\n"
              "GANGWAY_SECRET_FD, GANGWAY_JOB and GANGWAY_RESTART_COUNT. When one fails, all others are\n"
              "ended, and the exit status is that of the first that failed (128 + the signal)."};
}

void check_part(Part& part) {
  std::vector<std::string>& command = part.program.command;
  if (!command.empty() && command.front() == "--")
    command.erase(command.begin());
  else if (!command.empty() && command.front().starts_with("-"))
    throw std::invalid_argument("unknown option " + command.front() +
                                " (options of the program come after the program)");
  if (command.empty()) throw std::invalid_argument("no program given");
  if (part.options.module && part.options.no_python)
    throw std::invalid_argument("--module and --no-python contradict each other");
}

void check_all(const Request& request) {
  for (const Part& part : request.parts)
    if (!part.has_count && !request.hosts.given()) throw std::invalid_argument("--ranks is required");
  if (request.options.ranks() > kMostRanks)
    throw std::invalid_argument("more than " + std::to_string(kMostRanks) + " ranks in all");
}

// Returns the exit status, if the program ends here.
std::optional<int> read(Request& request, int count, char** arguments) {
  std::vector<Words> words = parts_of(count, arguments);
  request.options.programs.resize(words.size());
  for (Program& program : request.options.programs) request.parts.push_back({program, {}, false});
  std::vector<gangway::tools::Part> lines;
  for (size_t i = 0; i < words.size(); ++i) {
    Part& part = request.parts[i];
    CommandLine line = i == 0 ? first_line(request) : CommandLine{"gangrun", "", program_options(part)};
    line.rest = &part.program.command;
    line.check = [&request, &part] {
      check_part(part);
      if (&part == &request.parts.back()) check_all(request);
    };
    lines.push_back({std::move(line), std::move(words[i])});
  }
  return gangway::tools::read_arguments(lines);
}

int run(Request& request) {
  LaunchOptions& options = request.options;
  options.prefix = !request.no_prefix;
  if (request.hosts.given()) {
    spread(options, request.hosts, request.parts[0], request.python);
    return gangway::tools::launch(options);  // the nodes look for the program
  }
  for (Part& part : request.parts) {
    part.options.python = request.python;
    part.program.command = gangway::tools::rank_command(std::move(part.program.command), part.options);
  }
  return gangway::tools::launch(options);
}

}  // namespace

int main(int count, char** arguments) {
  Request request;
  if (const std::optional<int> status = read(request, count, arguments)) return *status;
  try {
    return run(request);
  } catch (const gangway::tools::CannotRun& error) {
    std::fprintf(stderr, "gangrun: %s\n", error.what());
    return error.status;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gangrun: %s\n", error.what());
    return 1;
  }
}

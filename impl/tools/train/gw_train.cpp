// gw-train: trains a model as run.toml says. It uses the public C ABI alone.
#include <gangway/base.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "tools/train/explain.h"
#include "tools/train/run.h"
#include "tools/train/settings.h"
#include "tools/train/stop.h"
#include "tools/train/verify.h"

namespace gangway::train {
namespace {

constexpr const char* kUsage =
    "usage: gw-train run.toml [--section.key value]... [--explain | --verify]\n"
    "  gangrun -n 4 gw-train run.toml                       trains over four ranks, or continues the run\n"
    "  gangrun -n 4 gw-train run.toml --train.steps 2000    any key of the file can be given here\n"
    "  gw-train --explain run.toml [--ranks 4]              prints what will happen, and stops\n"
    "  gangrun -n 4 gw-train --verify run.toml              compares a step with that of one rank, in f64\n"
    "  gw-train --help                                      lists all keys\n"
    "Relative paths, those in the file too, begin at the working directory.\n"
    "Exit status: 0 done, 75 stopped and saved (the same command continues), 64 wrong settings, 65 a "
    "damaged\n"
    "file, 69 another rank was lost, 71 no memory, 74 a file cannot be read or written, 76 the run "
    "diverges,\n"
    "70 anything else.\n";

struct Command {
  std::string file;
  std::vector<std::pair<std::string, std::string>> overrides;
  bool explains = false, verifies = false;
  int ranks = 1;
};

int integer_of(const std::string& option, const std::string& value) {
  char* end = nullptr;
  const long number = std::strtol(value.c_str(), &end, 10);
  if (value.empty() || *end != '\0' || number < 1 || number > 1'000'000)
    throw SettingsError("the command line: " + option + " takes a number from 1 to 1000000, not " + value);
  return static_cast<int>(number);
}

Command parse(int argc, char** argv) {
  Command command;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--explain") {
      command.explains = true;
    } else if (word == "--verify") {
      command.verifies = true;
    } else if (word.rfind("--", 0) == 0) {
      std::string name = word.substr(2), value;
      if (const size_t equal = name.find('='); equal != std::string::npos) {
        value = name.substr(equal + 1);
        name.resize(equal);
      } else if (i + 1 < argc) {
        value = argv[++i];
      } else {
        throw SettingsError("the command line: " + word + " has no value");
      }
      if (name == "ranks")
        command.ranks = integer_of("--ranks", value);
      else
        command.overrides.emplace_back(name, value);
    } else if (command.file.empty()) {
      command.file = word;
    } else {
      throw SettingsError("the command line: \"" + word + "\" is one word too many; the file is " +
                          command.file);
    }
  }
  if (command.file.empty()) throw SettingsError(std::string("no file is given\n") + kUsage);
  return command;
}

// All ranks read the same settings, so that one of them is enough to say what is wrong.
bool is_first_rank() {
  for (const char* name : {"RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"})
    if (const char* rank = std::getenv(name)) return std::strcmp(rank, "0") == 0;
  return true;
}

Exit train_main(int argc, char** argv) {
  if (argc == 2 && (std::strcmp(argv[1], "--help") == 0 || std::strcmp(argv[1], "-h") == 0)) {
    std::printf("%s\nKeys of run.toml:\n%s", kUsage, describe_keys().c_str());
    return Exit::done;
  }
  if (argc == 2 && std::strcmp(argv[1], "--version") == 0) {
    std::printf("gw-train %s\n", GANGWAY_VERSION);
    return Exit::done;
  }
  try {
    const Command command = parse(argc, argv);
    if (!command.explains && !command.verifies) take_stop_signals();
    const Settings settings = Settings::read(command.file, command.overrides);
    if (command.explains) return explain(settings, command.ranks);
    if (command.verifies) return verify(settings);
    return run(settings);
  } catch (const SettingsError& error) {
    if (is_first_rank()) std::fprintf(stderr, "gw-train: %s\n", error.what());
    return Exit::usage;
  } catch (const Failed& failure) {
    if (!failure.is_of_all || is_first_rank()) std::fprintf(stderr, "gw-train: %s\n", failure.what());
    return failure.exit;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gw-train: %s\n", error.what());
    return Exit::internal;
  }
}

}  // namespace
}  // namespace gangway::train

int main(int argc, char** argv) { return static_cast<int>(gangway::train::train_main(argc, argv)); }

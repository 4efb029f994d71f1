// gw-checkpoint looks after the checkpoints of runs: it lists, verifies, compares and converts them.
#include <sys/resource.h>
#include <CLI/CLI.hpp>

#include <cstdio>
#include <exception>
#include <map>
#include <string>

#include "tools/checkpoint_commands.h"

namespace {

using namespace gangway;

constexpr int kUsage = 2;    // exit status of a wrong command line
constexpr int kTrouble = 2;  // of a comparison that could not be made, as of diff(1)

const std::map<std::string, DType> kDtypes = {
    {"f64", DType::f64}, {"f32", DType::f32}, {"bf16", DType::bf16}, {"f16", DType::f16}};

// A large checkpoint has more files than a process may usually have open.
void allow_many_files() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

void add_verify(CLI::App& app, VerifyCommand& command) {
  CLI::App* verify =
      app.add_subcommand("verify", "reads a checkpoint, or the newest of a run, and checks every hash");
  verify->add_option("folder", command.folder, "a checkpoint or the folder of a run")->required();
  verify->add_flag("--all", command.all, "all checkpoints of the run");
  verify->add_option("--threads", command.threads, "default: one for each processor, at most 8")
      ->check(CLI::Range(1, 256));
}

void add_diff(CLI::App& app, DiffCommand& command) {
  CLI::App* diff = app.add_subcommand("diff", "values and states of two checkpoints");
  diff->add_option("a", command.a, "a checkpoint, a folder of Hugging Face, or a safetensors file")
      ->required();
  diff->add_option("b", command.b, "another")->required();
  diff->add_option("--lines", command.lines, "tensors that are printed")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
}

void add_output(CLI::App* app, ConvertCommand& command, bool& unverified) {
  app->add_option("folder", command.folder, "a checkpoint, or a folder of Hugging Face")->required();
  app->add_option("out", command.out, "the new folder, which must not exist")->required();
  app->add_option("--model", command.model, "name of the checkpoint's model, if it has several");
  app->add_option("--max-file-size", command.max_file_bytes,
                  "of one safetensors file, like 5GB or 1GiB; 0: no limit")
      ->capture_default_str()
      ->transform(CLI::AsSizeValue(true));
  app->add_flag("--no-verify", unverified, "do not check the hashes first");
}

int run(const CLI::App& app, const VerifyCommand& verify, const DiffCommand& diff,
        const ConvertCommand& convert, const std::string& folder) {
  if (app.got_subcommand("list")) return list_checkpoints(folder) ? 0 : 1;
  if (app.got_subcommand("verify")) return verify_folder(verify) ? 0 : 1;
  if (app.got_subcommand("diff")) return diff_folders(diff) ? 0 : 1;
  convert_model(convert);
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  CLI::App app("gw-checkpoint: lists, verifies, compares and converts the checkpoints of a run.",
               "gw-checkpoint");
  app.set_version_flag("--version", GANGWAY_VERSION);
  app.require_subcommand(1);
  std::string folder, dtype;
  bool unverified = false;
  VerifyCommand verify;
  DiffCommand diff;
  ConvertCommand convert;
  CLI::App* list = app.add_subcommand("list", "the complete checkpoints of a run");
  list->add_option("run", folder, "the folder of the run")->required();
  add_verify(app, verify);
  add_diff(app, diff);
  CLI::App* to = app.add_subcommand("convert", "a model in another dtype, as a plain folder of Hugging Face");
  add_output(to, convert, unverified);
  to->add_option("--dtype", dtype, "of floating tensors")->required()->check(CLI::IsMember(kDtypes));
  add_output(app.add_subcommand("weights", "a model alone, as a plain folder of Hugging Face"), convert,
             unverified);
  try {
    app.parse(count, arguments);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  }
  if (!dtype.empty()) convert.dtype = kDtypes.at(dtype);
  convert.verify = !unverified;
  try {
    allow_many_files();
    return run(app, verify, diff, convert, folder);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gw-checkpoint: %s\n", error.what());
    return app.got_subcommand("diff") ? kTrouble : 1;
  }
}

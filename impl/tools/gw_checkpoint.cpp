// gw-checkpoint looks after the checkpoints of runs: it lists, verifies, compares, converts and merges them.
#include <sys/resource.h>

#include <cstdio>
#include <exception>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tools/arguments.h"
#include "tools/checkpoint_commands.h"

namespace {

using namespace gangway;

using tools::CommandLine;
using tools::Option;

constexpr int kTrouble = 2;  // exit status of a comparison that could not be made, as of diff(1)

const std::map<std::string, DType> kDtypes = {
    {"f64", DType::f64}, {"f32", DType::f32}, {"bf16", DType::bf16}, {"f16", DType::f16}};

// A large checkpoint has more files than a process may usually have open.
void allow_many_files() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// Everything that the command line says.
struct Request {
  std::string command, folder, dtype;
  bool unverified = false;
  VerifyCommand verify;
  DiffCommand diff;
  ConvertCommand convert;
  MergeCommand merge;
};

CommandLine verify_line(VerifyCommand& command) {
  return {"verify",
          "reads a checkpoint, or the newest of a run, and checks every hash",
          {{"folder", &command.folder, "a checkpoint or the folder of a run", {.required = true}},
           {"--all", &command.all, "all checkpoints of the run"},
           {"--threads",
            &command.threads,
            "default: one for each processor, at most 8",
            {.must = tools::Integers{1, 256}}}}};
}

CommandLine diff_line(DiffCommand& command) {
  return {"diff",
          "values and states of two checkpoints",
          {{"a",
            &command.a,
            "a checkpoint, a run (its newest one), a folder of Hugging Face, or a safetensors file",
            {.required = true}},
           {"b", &command.b, "another", {.required = true}},
           {"--lines",
            &command.lines,
            "tensors that are printed",
            {.must = tools::NotNegative{}, .default_shown = true}}}};
}

// The options of "convert" and "weights".
std::vector<Option> output_options(Request& request) {
  ConvertCommand& command = request.convert;
  return {
      {"folder",
       &command.folder,
       "a checkpoint, a run (its newest one), or a folder of Hugging Face",
       {.required = true}},
      {"out", &command.out, "the new folder, which must not exist", {.required = true}},
      {"--model", &command.model, "name of the checkpoint's model, if it has several"},
      {"--max-file-size",
       &command.max_file_bytes,
       "of one safetensors file, like 5GB or 1GiB; 0: no limit",
       {.must = tools::Bytes{}, .default_shown = true}},
      {"--no-verify", &request.unverified, "do not check the hashes first"},
  };
}

CommandLine convert_line(Request& request) {
  CommandLine line = {"convert", "a model in another dtype, as a plain folder of Hugging Face",
                      output_options(request)};
  line.options.push_back({"--dtype",
                          &request.dtype,
                          "of floating tensors",
                          {.must = tools::names_of(kDtypes), .required = true}});
  return line;
}

CommandLine merge_line(Request& request) {
  MergeCommand& command = request.merge;
  return {"merge",
          "a base and the adapters that were trained over it as one model, a plain folder of Hugging Face",
          {{"folder",
            &command.folder,
            "a checkpoint or run of adapters, or a folder of PEFT",
            {.required = true}},
           {"base", &command.base, "the folder of the base", {.required = true}},
           {"out", &command.out, "the new folder, which must not exist", {.required = true}},
           {"--dtype", &request.dtype, "of the weights; default: f32", {.must = tools::names_of(kDtypes)}},
           {"--max-file-size",
            &command.max_file_bytes,
            "of one safetensors file, like 5GB or 1GiB; 0: no limit",
            {.must = tools::Bytes{}, .default_shown = true}}}};
}

CommandLine line_of(Request& request) {
  return {"gw-checkpoint",
          "gw-checkpoint: lists, verifies, compares, converts and merges the checkpoints of a run.",
          {{"--version", tools::Version{GANGWAY_VERSION}}},
          {{"list",
            "the complete checkpoints of a run",
            {{"run", &request.folder, "the folder of the run", {.required = true}}}},
           verify_line(request.verify),
           diff_line(request.diff),
           convert_line(request),
           merge_line(request),
           {"weights", "a model alone, as a plain folder of Hugging Face", output_options(request)}},
          &request.command};
}

int run(const Request& request) {
  if (request.command == "list") return list_checkpoints(request.folder) ? 0 : 1;
  if (request.command == "verify") return verify_folder(request.verify) ? 0 : 1;
  if (request.command == "diff") return diff_folders(request.diff) ? 0 : 1;
  if (request.command == "merge")
    merge_adapters(request.merge);
  else
    convert_model(request.convert);
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  Request request;
  if (const auto status = tools::read_arguments(line_of(request), count, arguments)) return *status;
  if (!request.dtype.empty()) request.convert.dtype = request.merge.dtype = kDtypes.at(request.dtype);
  request.convert.verify = !request.unverified;
  try {
    allow_many_files();
    return run(request);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gw-checkpoint: %s\n", error.what());
    return request.command == "diff" ? kTrouble : 1;
  }
}

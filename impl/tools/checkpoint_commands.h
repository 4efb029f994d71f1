// The commands of gw-checkpoint. Each prints its result and throws if it cannot give one. All of them read
// files in pieces, so memory does not grow with the model, but for merge_adapters.
//
// Thread rule: functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/dtype.h"

namespace gangway {

// Prints a line for each complete checkpoint of a run. Returns whether the state.json of all of them is
// whole.
bool list_checkpoints(const std::string& run);

struct VerifyCommand {
  std::string folder;  // a checkpoint or a run
  bool all = false;    // of a run: all checkpoints, not only the newest
  int threads = 0;     // 0: one for each processor, at most 8
};
// Prints the damage that it finds. Returns whether there is none.
bool verify_folder(const VerifyCommand& command);

struct DiffCommand {
  std::string a, b;  // a checkpoint, a folder of Hugging Face, or a safetensors file
  int lines = 20;    // tensors that are printed
};
// Returns whether all values and states are equal.
bool diff_folders(const DiffCommand& command);

struct ConvertCommand {
  std::string folder, out;     // a checkpoint or a folder of Hugging Face; a folder that does not exist yet
  std::string model;           // name of the checkpoint's model
  std::optional<DType> dtype;  // of floating tensors; absent: as they are
  uint64_t max_file_bytes = 5'000'000'000;
  bool verify = true;  // the model's files of a checkpoint before they are read
};
void convert_model(const ConvertCommand& command);

struct MergeCommand {
  std::string folder;  // a checkpoint of adapters, or PEFT's folder of an adapter
  std::string base;    // the folder of Hugging Face that they were trained over
  std::string out;     // a folder that does not exist yet
  std::optional<DType> dtype;
  uint64_t max_file_bytes = 5'000'000'000;
};
// Writes the base with the adapters added to its weights. Unlike the other commands it holds the whole model
// in memory.
void merge_adapters(const MergeCommand& command);

// Returns the folder of a checkpoint: `folder` itself, or the newest checkpoint if it is the folder of a run.
std::string checkpoint_in(const std::string& folder);
bool is_there(const std::string& path);  // anything of that name, a link without a target too

}  // namespace gangway

// state.json of a run's checkpoint: everything that changes the next step and is not a tensor, and what the
// checkpoint's files must hold. The other files of the folder run/step-00000500/ are those of the models
// (config.json, model*.safetensors) and of the optimizers (<optimizer>*.safetensors). The part of a name
// "" lies in the folder itself; the model "teacher" lies in teacher/.
//
// A file is not trusted: parse_state checks every field.
//
// Thread rule: values.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/layout.h"

namespace gangway {

// A part of one tensor of a safetensors file, at most kBlockBytes large: the smallest thing whose hash is
// recorded. The rank that wrote it has hashed its elements in the order of the box, row-major.
struct StoredBlock {
  std::string tensor;
  Box box;
  uint64_t hash = 0;  // XXH3, 64 bits
};
inline constexpr uint64_t kBlockBytes = 4 << 20;

struct StoredFile {
  std::string name;    // relative to the checkpoint's folder
  uint64_t bytes = 0;  // of the whole file
  uint64_t hash =
      0;  // XXH3 of all bytes before the data section of a safetensors file; of a whole other file
  std::vector<StoredBlock> blocks;  // empty: not a safetensors file, or one whose tensors have no elements
};

struct StoredOptimizer {
  std::string kind;
  int64_t steps = 0;
  double lr = 0;             // the base rate in use
  double configured_lr = 0;  // the rate of the options; it differs from `lr` if set_lr was called
  double loss_scale = 1;
  int64_t finite_steps = 0;                    // in a row, of a dynamic loss scale
  std::map<std::string, int64_t> first_steps;  // of parameters that became trainable after step 0
  std::string hyperparameters;  // JSON object, for information and for the list of differences at resume
};

struct CheckpointState {
  static constexpr int kFormat = 1;
  int64_t step = 0;                           // batches taken
  int64_t tokens = 0;                         // seen by the model
  std::string mesh;                           // JSON object ("" is written as {}), for information
  std::map<std::string, std::string> models;  // by name: JSON object {"dtype": ..., "parameters": count}
  std::map<std::string, StoredOptimizer> optimizers;  // by name
  std::map<std::string, std::string> texts;  // by name: positions of data sets, of metrics, ... (UTF-8)
  std::string user;                          // the caller's bytes; base64 in the file
  std::vector<StoredFile> files;             // sorted by name; state.json is not among them
};

inline constexpr char kStateName[] = "state.json";

// Returns the text of state.json. Its last key is "hash", XXH3 of all bytes before that key's line, so that a
// flipped bit anywhere in the file is found. INVALID_ARGUMENT: a number is negative or not finite, a text is
// not UTF-8, a JSON object is none, or the files are not sorted or lead out of the folder.
std::string to_json(const CheckpointState& state);
// CORRUPT, with the path and the field: not exactly what to_json writes, or the hash differs. NOT_SUPPORTED:
// a later format.
CheckpointState parse_state(std::string_view json, const std::string& path);

}  // namespace gangway

// The checkpoint layer holds files of models, their formats, and which rank reads and writes which rows.
// Where rows lie in memory belongs to parallel, and everything that a step needs to train.
//
// This header declares how a whole model is saved to a folder and loaded from files (save.cpp, load.cpp).
//
// Thread rule: one thread at a time; collective over the model's gangs.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/dtype.h"

namespace gangway {

class Model;   // parallel/model/model.h
class Module;  // nn/module.h

struct SaveOptions {
  DType dtype = DType{};  // of the file; DType{}: each parameter's master dtype
  std::map<std::string, std::string> metadata;
  uint64_t max_file_bytes = 0;  // of a file of weights; a tensor is never cut; 0: no limit
};

// Names of the files in a folder, as Hugging Face has them.
inline constexpr char kWeightsName[] = "model.safetensors";
inline constexpr char kIndexName[] = "model.safetensors.index.json";

// Writes folder/model.safetensors, or above max_file_bytes several files with an index, and, for a decoder,
// folder/config.json. Collective; each rank writes its own rows into the files. The files change in one
// commit (save_folder.h): readers find either the whole earlier checkpoint or the whole new one. The commit
// also removes the files of weights of an earlier checkpoint.
void save_model(Model& model, const std::string& folder, const SaveOptions& options);

struct LoadOptions {
  // Whether to ignore tensors that the model does not need: unknown names, and further tensors of a tied
  // parameter (lm_head.weight).
  bool ignore_extra = false;
  // Whether to ignore that the folder's config.json describes another model.
  bool ignore_config = false;
};

// Reads a file or a folder (model.safetensors, or model.safetensors.index.json with its files) into a
// materialized model on any mesh. Each rank reads its own rows only. Collective. These errors are thrown on
// all ranks and change nothing: NOT_FOUND: a name is missing. INVALID_ARGUMENT: a shape differs, a dtype is
// not floating, a tied parameter has two values, the files have unknown tensors, or the folder's config.json
// describes another model. MISMATCH: ranks have opened different files. The values are written inside the
// version gate. A read that fails there, or a file that changes meanwhile, is IO on all ranks and leaves the
// values undefined; the gangs stay usable.
void load_model(Model& model, const std::string& path, const LoadOptions& options = {});

// Throws the errors that load_model would throw about names, shapes and dtypes. Local; allocates no values.
void check_loads(const Module& model, const std::string& path);

}  // namespace gangway

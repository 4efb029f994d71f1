// Saves and loads some parameters of a model under the names that a file gives them: all of a model, or its
// adapters. model_files.h and lora_files.h say which.
//
// Thread rule: one thread at a time; collective over the model's gangs.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "checkpoint/file_place.h"
#include "checkpoint/model_files.h"
#include "checkpoint/save_folder.h"
#include "checkpoint/source.h"
#include "checkpoint/tensor_set_plan.h"
#include "parallel/model/model.h"

namespace gangway {

struct PlacedParameter {
  ParameterPtr parameter;
  FilePlace place;
};

struct TensorsToSave {
  const char* stem = "";  // of the files, such as model
  std::vector<PlacedParameter> tensors;
};
// Returns the dtype in a file for which the save asks for `wanted` (DType{}: the master's). A buffer keeps
// its own.
DType stored_dtype(const Parameter& parameter, DType wanted);
// Writes the text `bytes` into a new staged file.
void stage(const SaveFolder& folder, const std::string& name, const std::string& bytes);
// Stages the files; each rank writes its own rows. `describe` checks what it must, and says what to save; it
// runs on every rank, and a refusal of one rank is that of all. `commit` then runs on rank 0.
void save_tensors(Model& model, const std::string& path, const SaveOptions& options,
                  const std::function<TensorsToSave()>& describe,
                  const std::function<void(SaveFolder&, const TensorSetPlan&)>& commit);

struct TensorsToLoad {
  std::vector<ParameterPtr> parameters;
  std::vector<PlacedParameter> names;  // the places of all parameters, a tied one under each of its names
  // Whether a tensor in the files follows from the options of the model. Null: none does.
  std::function<bool(const std::string&)> is_derived;
};
// Reads a file, or a folder whose files are called `stem`. `describe` runs on every rank when the files are
// open, checks what it must, and says what to load. An adapter that the files do not have keeps its values if
// it is among others.
Source load_tensors(Model& model, const std::string& path, const std::string& stem,
                    const LoadOptions& options, const std::function<TensorsToLoad(const Source&)>& describe);

}  // namespace gangway

// What a checkpoint holds of its parts: the tensors of each model and of each optimizer, in a fixed order,
// and this rank's rows of them. The rows are those that save_model writes: of ranks with equal rows the first
// one's; each stage of a pipeline has its own; a tied parameter appears once, a frozen one has no states.
//
// Thread rule: values, made by one thread.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/run/checkpoints.h"
#include "checkpoint/run/tensor_set.h"

namespace gangway {

// Returns the name in a checkpoint of a file of the part `part`.
std::string name_in_checkpoint(const std::string& part, const std::string& file);

// The tensors of one model, or the states of one optimizer.
struct SavedSet {
  std::string stem;  // of its files: "model", "optimizer", "teacher/model"
  bool is_optimizer = false;
  std::map<std::string, TensorSpecOnDisk> tensors = {};
  std::optional<TensorSetPlan> files = {};  // set by plan_files
  bool in_one_file = false;                 // whatever its size, as PEFT reads adapters
};

// This rank's rows of one tensor.
struct SavedRows {
  size_t set = 0;  // in SavePlan::sets
  std::string name;
  DType dtype = DType::f32;  // in the file
  Box box;
  // In the memory of the model or the optimizer, in the order of the file; strided if the file has a matrix
  // transposed.
  Tensor rows;
  Model* model = nullptr;
  size_t at = 0;  // the byte of the host copy at which they begin; set by place_rows
  size_t bytes() const { return static_cast<size_t>(box.shape.count()) * item_bytes(dtype); }
};

struct SavePlan {
  std::vector<SavedSet> sets;  // of each part its model, then its optimizer if it has one; equal on all ranks
  std::vector<SavedRows> own;
  size_t copy_bytes = 0;  // of the host copy of `own`; set by place_rows
};

// Throws what is wrong with the parts. Local.
void check_parts(const std::vector<CheckpointPart>& parts, const Gangs& gangs, const char* call);

// Lists the parameters, and the optimizer's states. A rank that has no rows of a parameter may not know which
// states the parameter has, and then leaves them out.
SavePlan list_tensors(const std::vector<CheckpointPart>& parts, DType model_dtype);
// Ranks exchange the states that they know: known_states() of each goes to add_states() on all.
std::string known_states(const SavePlan& plan);
void add_states(SavePlan& plan, const std::string& known);
// Decides in which file each tensor lies. A set without tensors has no files.
void plan_files(SavePlan& plan, uint64_t max_file_bytes);
// Decides where this rank's rows lie in the host copy, which begins at a multiple of kDirectAlignment. Large
// rows that are one piece of their file lie there as in the file, so that they can be written directly.
void place_rows(SavePlan& plan);

}  // namespace gangway

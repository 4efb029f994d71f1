// The checkpoints of a run: saves everything that changes the next step, beside training, and restores it on
// any mesh.
//
// save() copies values and states to host memory and returns; a writer thread of low priority writes the
// files and meets the writers of other ranks on a gang of its own, so that their meetings never mix with
// training's collectives. An error of the writer is thrown by the next save() or by wait(), on all ranks
// alike, and the earlier checkpoints are untouched.
//
// Thread rule: one thread at a time; every call is collective over the gangs, but for due() and
// buffer_bytes().
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/run/state.h"
#include "optim/optimizer.h"
#include "parallel/model/model.h"

namespace gangway {

struct CheckpointsOptions {
  std::string folder;                    // that of rank 0 counts
  int keep = 3;                          // newest complete ones that count (RunFolder::remove_old); 0: all
  int64_t every = 0;                     // due() is true at multiples; 0: never
  bool synchronous = false;              // true: save() returns after the commit and keeps no copy
  uint64_t max_file_bytes = 5ull << 30;  // of a safetensors file; 0: no limit
  DType model_dtype = DType{};           // of the model's files; DType{}: the masters'
  std::string job;                       // names the holder of the folder's lease; "": host and process
  int64_t timeout_ms = 3'600'000;        // of the writing of one save
};

// One named part of a checkpoint. The part "" lies in the checkpoint's folder itself, the part "teacher" in
// teacher/.
struct CheckpointPart {
  std::string name;                // "", or letters, digits, - and _
  Model* model = nullptr;          // saved as a Hugging Face folder
  Optimizer* optimizer = nullptr;  // of `model`; null: the model is not trained
  // A folder whose tokenizer and generation files are copied into each checkpoint; "": the one from which the
  // model was loaded, if it is still there. That of rank 0 counts.
  std::string carry_from = {};
};

struct RestoreOptions {
  bool verify = true;  // false: only the byte ranges that a rank needs are read
  bool strict = true;  // false: what fits is loaded; RestoreReport lists the rest
  int64_t step = -1;   // -1: the newest complete one
};

struct RestoreReport {
  CheckpointState state;
  std::vector<std::string> left_out;     // parameters and states without a place, or without a value
  std::vector<std::string> differences;  // hyperparameters: "lr: 0.001 in the checkpoint, 0.002 now"
  std::vector<std::string> moved_aside;  // newer checkpoints, by their new paths
};

class Checkpoints {
 public:
  // Makes the folder if it is missing, and takes its lease. If another host or container holds it, waits up
  // to kLeaseSeconds until that lease ends, and logs that it waits. INVALID_ARGUMENT: an option out of its
  // range. INVALID_STATE: another job holds the lease and runs. NOT_SUPPORTED: a fake gang of several ranks.
  // IO.
  Checkpoints(std::shared_ptr<Gangs> gangs, CheckpointsOptions options);
  ~Checkpoints();  // waits for the writer with a deadline; local

  const CheckpointsOptions& options() const { return options_; }
  const std::shared_ptr<Gangs>& gangs() const;
  bool due(int64_t step) const { return options_.every > 0 && step > 0 && step % options_.every == 0; }
  // `state` carries step, tokens and texts, which are equal on all ranks, and rank 0's user bytes; the rest
  // is filled in here. First waits for the save before, whose error it throws; then nothing has been begun.
  // INVALID_STATE: a forward awaits its backward, or a model has no storage. INVALID_ARGUMENT: a part.
  // OUT_OF_MEMORY: no room for the copy.
  void save(const std::vector<CheckpointPart>& parts, CheckpointState state);
  // Waits until the last save is written. Throws its error, unless an earlier call has thrown it.
  void wait();
  // Restores the newest complete checkpoint, or that of a step, and moves newer ones aside. Absent: there is
  // none. Throws before any value changes; only a file that changes or vanishes while it is read (IO) leaves
  // values undefined, on all ranks alike. NOT_FOUND: the checkpoint of a step, a part, a parameter or a
  // state.
  // INVALID_ARGUMENT: another shape, dtype or kind of optimizer. CORRUPT: with verify, a flipped bit in any
  // file.
  std::optional<RestoreReport> restore(const std::vector<CheckpointPart>& parts,
                                       const RestoreOptions& options);
  uint64_t buffer_bytes() const;  // of host memory that save() keeps for its copies

 private:
  struct Impl;
  CheckpointsOptions options_;
  std::unique_ptr<Impl> impl_;
};

// Reads the states of an optimizer from one safetensors file: tensors `<state>.<parameter>` in the
// parameter's whole shape, such as exp_avg.model.norm.weight, and optionally `step`, one number. A PyTorch
// state_dict whose states were given these names is such a file. Without `step`, the number of steps stays.
// Collective over the model's gangs; errors as those of Checkpoints::restore.
void load_optimizer(Model& model, Optimizer& optimizer, const std::string& path);

}  // namespace gangway

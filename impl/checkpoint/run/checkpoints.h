// The checkpoints of a run: saves everything that changes the next step, beside training, and restores it on
// any mesh.
//
// save() copies values and states to host memory and returns; a writer thread of low priority writes the
// files and meets the writers of other ranks on a gang of its own, so that their meetings never mix with
// training's collectives. An error of the writer is thrown by the next save() or by wait(), on all ranks
// alike, and the earlier checkpoints are untouched.
//
// Thread rule: one thread at a time; every call is collective over the gangs.
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
  std::string folder;
  int keep = 3;              // newest complete ones; 0: all
  int64_t every = 0;         // due() is true at multiples; 0: never
  bool synchronous = false;  // true: save() returns after the commit and keeps no copy
  uint64_t max_file_bytes = 5ull << 30;
  DType model_dtype = DType{};  // of the model's files; DType{}: the masters'
  std::string job;              // names the holder of the folder's lease; "": host and process
};

// One named part of a checkpoint. The names "" and any other text are allowed; a folder of models is named so.
struct CheckpointPart {
  std::string name;
  Model* model = nullptr;          // saved as a Hugging Face folder
  Optimizer* optimizer = nullptr;  // of `model`
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
};

class Checkpoints {
 public:
  Checkpoints(std::shared_ptr<Gangs> gangs, CheckpointsOptions options);
  ~Checkpoints();  // waits for the writer with a deadline; local

  bool due(int64_t step) const { return options_.every > 0 && step > 0 && step % options_.every == 0; }
  // `state` carries step, tokens, texts and user; the rest is filled in here.
  void save(std::vector<CheckpointPart> parts, CheckpointState state);
  void wait();
  // Absent: the folder has no complete checkpoint. Moves newer ones aside if `step` is not the newest.
  std::optional<RestoreReport> restore(const std::vector<CheckpointPart>& parts,
                                       const RestoreOptions& options);
  uint64_t buffer_bytes() const;  // of host memory that save() keeps for its copies

 private:
  struct Impl;
  CheckpointsOptions options_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gangway

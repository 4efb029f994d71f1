// Reads parts of a checkpoint into models and optimizers on any mesh: each rank reads the byte ranges of its
// own rows alone, and converts them to the dtype that it keeps them in.
//
// Thread rule: one thread at a time; local, but for what the comments say.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/file_place.h"
#include "checkpoint/run/checkpoints.h"
#include "checkpoint/run/save_job.h"
#include "checkpoint/run/state_places.h"
#include "checkpoint/source.h"

namespace gangway {

inline constexpr char kStepName[] = "step";  // in a file of states: the number of steps, if it is there

// What a strict restore refuses, and another one lists: names that have no value or no place.
class LeftOut {
 public:
  LeftOut(std::vector<std::string>& list, bool strict) : list_(list), strict_(strict) {}
  // Lists the line; if strict, throws it as an Error of the code instead.
  void add(Code code, const std::string& line);

 private:
  std::vector<std::string>& list_;
  const bool strict_;
};

// Rows of one tensor in memory and the tensor in the files that has their values.
struct RowsToRead {
  FilePlace place;
  Box box;  // of the tensor in memory
  Tensor rows;
  Source::Entry entry;
};

// The values of one model.
class ModelValues {
 public:
  // Opens the files in `folder`, and finds every parameter. NOT_FOUND: there is none for a parameter.
  // INVALID_ARGUMENT: another shape, dtype or config.json, or a tensor that the model lacks.
  ModelValues(Model& model, const std::string& folder, LeftOut& left_out);
  // The same of a checkpoint that has the adapters alone. The model has its base already.
  static ModelValues of_adapters(Model& model, const std::string& folder, LeftOut& left_out);
  void read(Stream& stream) const;  // inside an update of the model

 private:
  using Places = std::map<const Parameter*, std::vector<FilePlace>>;
  ModelValues(Model& model, std::string folder, Source source);
  void find(const std::vector<NamedParameter>& parameters, const Places& places, LeftOut& left_out);

  Model& model_;
  std::string folder_;  // absolute
  Source source_;
  bool of_adapters_ = false;
  std::vector<RowsToRead> rows_;
};

// The states of one optimizer.
class OptimizerStates {
 public:
  // Finds every state in the files. Errors as above.
  OptimizerStates(Model& model, Optimizer& optimizer, Source source, LeftOut& left_out);
  void read(Stream& stream) const;
  // Parameters that the optimizer steps and that have no state in the files.
  const std::vector<size_t>& without_states() const { return without_; }
  const Source& source() const { return source_; }

 private:
  void find(size_t parameter, LeftOut& left_out);
  void check_extra(LeftOut& left_out) const;

  Model& model_;
  Optimizer& optimizer_;
  Source source_;
  const StatePlaces places_;
  std::set<std::string> used_;  // tensors of the files that have a place
  std::vector<RowsToRead> rows_;
  std::vector<size_t> without_;
  std::vector<size_t> without_average_;  // parameters with states, but for the EMA
};

// Restores the parts from a checkpoint of the run's folder. Collective; Checkpoints::restore says the rest.
std::optional<RestoreReport> restore_checkpoint(Gangs& gangs, HeldFolder& folder,
                                                const std::vector<CheckpointPart>& parts,
                                                const RestoreOptions& options);

}  // namespace gangway

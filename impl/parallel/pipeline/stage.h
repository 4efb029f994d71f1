// Stages: ranges of a chain's children, one for each stage of a schedule, and a model that is cut into them. Every rank
// describes the whole model; after the cut it runs its own stages, and its peers' children are placeholders.
//
// Parameters. The model's list stays whole on all ranks, with its names. A parameter of other ranks' stages has no rows
// here: its layout begins with a split over "pp" that gives all rows to one rank. A parameter that several stages use
// (tied) belongs to the rank of the first of them. Another rank that uses it computes with a copy (fsdp/tied_parameters.h),
// which is in no list. Stages of one rank share the parameter itself.
//
// Thread rule: one thread at a time; local.
#pragma once

#include <vector>

#include "nn/chain.h"
#include "parallel/fsdp/tied_parameters.h"
#include "parallel/options.h"

namespace gangway {

// Children [first, end) of the chain.
struct Stage {
  size_t first = 0, end = 0;
  bool operator==(const Stage&) const = default;
};

// Layers are the chain's blocks, or without blocks all its children; what stands before the first or behind the last
// layer belongs to the first or the last stage. INVALID_ARGUMENT: a stage would have nothing, or first_layers do not
// rise from 0 to at most the number of layers, one for each stage.
std::vector<Stage> split_stages(const Chain& chain, int stages, const PipelineOptions& options);

class StageCut {
 public:
  // Cuts `chain` for pipeline rank `rank` of `ranks`. It outlives this. A failure leaves it whole.
  StageCut(Chain& chain, std::vector<Stage> stages, std::vector<int> stage_rank, int rank, int ranks);
  StageCut(const StageCut&) = delete;
  StageCut& operator=(const StageCut&) = delete;
  // Makes the model whole again, without wrappers around children that were added after the cut.
  void undo();

  Chain& chain() const { return chain_; }
  const std::vector<Stage>& stages() const { return stages_; }
  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  // What a stage gives for inputs `x`, also one of another rank: its modules are asked as if its rows were here. Floating values
  // have the dtype that this rank's own stages compute in. Empty: of the last stage, or of one that cannot say.
  Specs described(Context& ctx, int stage, Specs x) const;
  bool is_here(int stage) const { return stage_rank_[static_cast<size_t>(stage)] == rank_; }
  const std::vector<int>& stage_rank() const { return stage_rank_; }
  int last_stage() const { return static_cast<int>(stages_.size()) - 1; }

  // Of the whole model, in its order.
  const std::vector<NamedParameter>& parameters() const { return parameters_; }
  const std::vector<NamedParameter>& aliases() const { return aliases_; }
  // Those whose rows are all on other ranks.
  std::vector<ParameterPtr> elsewhere() const;
  const std::vector<TiedParameter>& tied() const { return tied_; }

 private:
  DType computed_dtype() const;
  void place_parameters();
  void copy_tied();
  void remove_others();

  Chain& chain_;
  const std::vector<Stage> stages_;
  const std::vector<int> stage_rank_;
  const int rank_, ranks_;
  std::vector<NamedParameter> parameters_, aliases_;
  std::vector<std::vector<int>>
      holders_;  // of each parameter: the ranks that use it, in order of their stages
  std::vector<TiedParameter> tied_;
  std::vector<ModulePtr> children_;  // of the chain before the cut
};

}  // namespace gangway

// Stages, which are ranges of a chain's children, one for each stage of a schedule; and a model that is cut
// into stages. Every rank describes the whole model. After the cut a rank runs its own stages, and
// placeholders stand for the children of other ranks.
//
// The model's list of parameters stays whole on all ranks, with all names. A parameter of other ranks' stages
// has no rows on this rank: its layout begins with a split over "pp" that gives all rows to one rank. A
// parameter that several stages use (tied) belongs to the rank of the first of these stages. Another rank
// that uses it computes with a copy (fsdp/tied_parameters.h), which is in no list. Stages of one rank share
// the parameter itself.
//
// Thread rule: one thread at a time; local.
#pragma once

#include <vector>

#include "mesh/gangs.h"
#include "nn/chain.h"
#include "parallel/fsdp/tied_parameters.h"
#include "parallel/options.h"

namespace gangway {

// Children [first, end) of the chain.
struct Stage {
  size_t first = 0, end = 0;
  bool operator==(const Stage&) const = default;
};

// Splits the layers of `chain` into stages. Layers are the blocks of the chain, or all its children if it has
// no blocks. Children before the first layer belong to the first stage, children after the last layer to the
// last stage. INVALID_ARGUMENT: a stage would have no module, or first_layers do not have one entry for each
// stage, from 0 up to at most the number of layers, without a fall.
std::vector<Stage> split_stages(const Chain& chain, int stages, const PipelineOptions& options);

class StageCut {
 public:
  // Cuts `chain` for this rank of pp. `chain` outlives this object. A failure leaves the chain whole.
  StageCut(Chain& chain, std::vector<Stage> stages, std::vector<int> stage_rank, const Gangs& gangs);
  StageCut(const StageCut&) = delete;
  StageCut& operator=(const StageCut&) = delete;
  // Makes the model whole again. Wrappers that were added around children after the cut are dropped.
  void undo();

  Chain& chain() const { return chain_; }
  const std::vector<Stage>& stages() const { return stages_; }
  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  // The outputs of a stage of any rank for inputs `x`: its modules are asked as if their rows were on this
  // rank. Floating outputs get the dtype in which this rank's own stages compute. Empty for the last stage,
  // and if a module does not know.
  Specs output_specs(Context& ctx, int stage, Specs x) const;
  bool is_local(int stage) const { return stage_rank_[static_cast<size_t>(stage)] == rank_; }
  const std::vector<int>& stage_rank() const { return stage_rank_; }
  int last_stage() const { return static_cast<int>(stages_.size()) - 1; }

  // Of the whole model, in its order.
  const std::vector<NamedParameter>& parameters() const { return parameters_; }
  const std::vector<NamedParameter>& aliases() const { return aliases_; }
  // The parameters whose rows are all on other ranks.
  std::vector<ParameterPtr> remote_parameters() const;
  const std::vector<TiedParameter>& tied() const { return tied_; }

 private:
  DType computed_dtype() const;
  void place_parameters();
  void copy_tied();
  void split_over_stages(const Gangs& gangs);
  void remove_others();

  Chain& chain_;
  const std::vector<Stage> stages_;
  const std::vector<int> stage_rank_;
  const int rank_, ranks_;
  std::vector<NamedParameter> parameters_, aliases_;
  // For each parameter the ranks that use it, in the order of their stages.
  std::vector<std::vector<int>> holders_;
  std::vector<TiedParameter> tied_;
  std::vector<ModulePtr> children_;  // the chain's, before the cut
};

}  // namespace gangway

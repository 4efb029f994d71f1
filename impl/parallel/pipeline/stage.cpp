#include "parallel/pipeline/stage.h"

#include <algorithm>
#include <set>

#include "nn/gradient.h"

namespace gangway {
namespace {

// A placeholder for a child that another rank runs.
class RemoteModule final : public Module {
 public:
  explicit RemoteModule(const Module& module)
      : rules_(module.id_rules()), gradients_(module.gradient_count()) {
    set_full_name(module.full_name());
  }
  const char* kind() const override { return "Remote"; }
  std::vector<IdRule> id_rules() const override { return rules_; }
  size_t gradient_count() const override { return gradients_; }
  Values forward(Context&, std::span<const Tensor>, Frame*) override { refuse(); }
  Values backward(Context&, std::span<const Tensor>, Frame&) override { refuse(); }

 private:
  [[noreturn]] void refuse() const {
    fail(Code::internal, "module ", full_name(), " runs on another pipeline rank");
  }
  const std::vector<IdRule> rules_;
  const size_t gradients_;
};

// The children that count as layers: [first, end).
Stage layers_of(const Chain& chain) {
  Stage layers{0, chain.children().size()};
  const auto is_layer = [&](size_t i) { return unwrapped(chain.child(i)).is_block(); };
  while (layers.first < layers.end && !is_layer(layers.first)) ++layers.first;
  while (layers.end > layers.first && !is_layer(layers.end - 1)) --layers.end;
  return layers.first == layers.end ? Stage{0, chain.children().size()} : layers;
}

// Makes the stages from the first child of each.
std::vector<Stage> stages_from(const std::vector<size_t>& firsts, size_t children) {
  std::vector<Stage> stages;
  for (size_t s = 0; s < firsts.size(); ++s)
    stages.push_back({firsts[s], s + 1 < firsts.size() ? firsts[s + 1] : children});
  for (size_t s = 0; s < stages.size(); ++s)
    if (stages[s].first >= stages[s].end)
      fail(Code::invalid_argument, "pipeline: stage ", s, " of ", stages.size(),
           " would have no module; a model of ", children, " modules in a row needs fewer stages");
  return stages;
}

std::vector<size_t> even_firsts(const Stage& layers, int stages) {
  const auto count = static_cast<int64_t>(layers.end - layers.first);
  const std::vector<int64_t> bounds = balanced_bounds(count, stages);
  std::vector<size_t> firsts{0};
  for (int s = 1; s < stages; ++s)
    firsts.push_back(layers.first + static_cast<size_t>(bounds[static_cast<size_t>(s)]));
  return firsts;
}

std::vector<size_t> given_firsts(const Stage& layers, int stages, const std::vector<int64_t>& given) {
  const auto count = static_cast<int64_t>(layers.end - layers.first);
  if (given.size() != static_cast<size_t>(stages))
    fail(Code::invalid_argument, "pipeline: first_layers has ", given.size(), " entries for ", stages,
         " stages");
  if (given[0] != 0) fail(Code::invalid_argument, "pipeline: first_layers[0] is ", given[0], ", not 0");
  std::vector<size_t> firsts{0};
  for (size_t s = 1; s < given.size(); ++s) {
    if (given[s] < given[s - 1] || given[s] > count)
      fail(Code::invalid_argument, "pipeline: first_layers[", s, "] is ", given[s], ", outside [",
           given[s - 1], ", ", count, "] (the entry before, the number of layers)");
    firsts.push_back(layers.first + static_cast<size_t>(given[s]));
  }
  return firsts;
}

// The number of parameter elements of each child. A shared parameter counts in every child that uses it.
std::vector<int64_t> costs_of(const Chain& chain) {
  std::vector<int64_t> costs;
  for (const Module::Child& child : chain.children()) {
    int64_t cost = 0;
    for (const NamedParameter& p : named_parameters(*child.module)) cost += p.parameter->shape.count();
    costs.push_back(cost);
  }
  return costs;
}

// Returns the first child of each stage, when no stage costs more than `most` and each takes as many children
// as it can. The result has as many entries as stages are needed.
std::vector<size_t> firsts_within(const std::vector<int64_t>& costs, int64_t most, size_t stages) {
  std::vector<size_t> firsts{0};
  int64_t sum = 0;
  for (size_t i = 0; i < costs.size(); ++i) {
    // The remaining children are no more than the remaining stages, so each gets its own.
    const bool one_each = costs.size() - i <= stages - firsts.size();
    if (i != firsts.back() && (sum + costs[i] > most || one_each)) {
      firsts.push_back(i);
      sum = 0;
    }
    sum += costs[i];
  }
  return firsts;
}

std::vector<size_t> firsts_by_cost(const Chain& chain, int stages) {
  const std::vector<int64_t> costs = costs_of(chain);
  if (costs.size() < static_cast<size_t>(stages))
    fail(Code::invalid_argument, "pipeline: ", costs.size(), " modules in a row cannot be ", stages,
         " stages");
  int64_t low = *std::max_element(costs.begin(), costs.end()), high = 0;
  for (const int64_t cost : costs) high += cost;
  const auto fits = [&](int64_t most) {
    return firsts_within(costs, most, static_cast<size_t>(stages)).size() <= static_cast<size_t>(stages);
  };
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (fits(middle))
      high = middle;
    else
      low = middle + 1;
  }
  return firsts_within(costs, low, static_cast<size_t>(stages));
}

std::vector<NamedParameter> in_range(const Chain& chain, const Stage& stage) {
  std::vector<NamedParameter> all;
  for (size_t i = stage.first; i < stage.end; ++i)
    for (const NamedParameter& p : named_parameters(chain.child(i))) all.push_back(p);
  return all;
}

void replace_parameter(Module& module, const ParameterPtr& from, const ParameterPtr& to) {
  for (size_t i = 0; i < module.parameters().size(); ++i)
    if (module.parameters()[i] == from) module.set_parameter(i, to);
  for (const Module::Child& child : module.children()) replace_parameter(*child.module, from, to);
}

// While an object of this class lives, all rows of a module's parameters count as this rank's, whatever their
// split over "pp" says.
class AllRowsLocal {
 public:
  explicit AllRowsLocal(Module& module) {
    for (const NamedParameter& p : named_parameters(module)) {
      layouts_.emplace_back(p.parameter, p.parameter->layout);
      for (Placement& at : p.parameter->layout)
        if (at.axis == "pp") at = Placement::replicate(at.axis);
    }
  }
  ~AllRowsLocal() {
    for (auto& [parameter, layout] : layouts_) parameter->layout = std::move(layout);
  }
  AllRowsLocal(const AllRowsLocal&) = delete;
  AllRowsLocal& operator=(const AllRowsLocal&) = delete;

 private:
  std::vector<std::pair<ParameterPtr, Layout>> layouts_;
};

// The rows of dim 0 that the splits so far leave on this rank.
int64_t own_rows(const Parameter& parameter, const Gangs& gangs) {
  int64_t rows = parameter.shape[0];
  for (const Placement& p : parameter.layout) {
    if (p.kind != Placement::Kind::shard || p.dim != 0) continue;
    const auto at = static_cast<size_t>(gangs.by_axes(p.axis)->rank());
    // fully_shard refuses a layout that has not one piece for each rank.
    if (at + 1 < p.bounds.size()) rows = p.bounds[at + 1] - p.bounds[at];
  }
  return rows;
}

}  // namespace

std::vector<Stage> split_stages(const Chain& chain, int stages, const PipelineOptions& options) {
  const Stage layers = layers_of(chain);
  std::vector<size_t> firsts;
  switch (options.split) {
    case StageSplit::even: firsts = even_firsts(layers, stages); break;
    case StageSplit::by_cost: firsts = firsts_by_cost(chain, stages); break;
    case StageSplit::given: firsts = given_firsts(layers, stages, options.first_layers); break;
  }
  return stages_from(firsts, chain.children().size());
}

StageCut::StageCut(Chain& chain, std::vector<Stage> stages, std::vector<int> stage_rank, const Gangs& gangs)
    : chain_(chain),
      stages_(std::move(stages)),
      stage_rank_(std::move(stage_rank)),
      rank_(gangs.coordinate(Axis::pp)),
      ranks_(gangs.mesh().degree(Axis::pp)) {
  parameters_ = named_parameters(chain_);
  std::set<std::string> first_names;
  for (const NamedParameter& p : parameters_) first_names.insert(p.name);
  aliases_ = named_parameters_with_aliases(chain_);
  std::erase_if(aliases_, [&](const NamedParameter& p) { return first_names.contains(p.name); });
  for (const Module::Child& child : chain_.children()) children_.push_back(child.module);
  try {
    place_parameters();
    copy_tied();
    split_over_stages(gangs);
    remove_others();
  } catch (...) {
    undo();
    throw;
  }
}

void StageCut::place_parameters() {
  holders_.resize(parameters_.size());
  for (size_t s = 0; s < stages_.size(); ++s)
    for (const NamedParameter& used : in_range(chain_, stages_[s]))
      for (size_t i = 0; i < parameters_.size(); ++i) {
        std::vector<int>& ranks = holders_[i];
        if (parameters_[i].parameter == used.parameter &&
            std::find(ranks.begin(), ranks.end(), stage_rank_[s]) == ranks.end())
          ranks.push_back(stage_rank_[s]);
      }
}

// Runs before the split over "pp" is written into the layouts, because a copy has no such split.
void StageCut::copy_tied() {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const ParameterPtr& original = parameters_[i].parameter;
    if (holders_[i].empty())
      fail(Code::invalid_argument, "pipeline: parameter ", parameters_[i].name,
           " belongs to the chain itself, not to one of its modules");
    if (holders_[i].size() > 1) {
      TiedParameter tied{original, nullptr, holders_[i]};
      if (rank_ != holders_[i][0] &&
          std::find(holders_[i].begin(), holders_[i].end(), rank_) != holders_[i].end()) {
        tied.copy = std::make_shared<Parameter>(*original);
        tied.copy->listed = false;
      }
      // Before the chain changes, because undo() reads tied_.
      tied_.push_back(tied);
      if (tied.copy != nullptr) replace_parameter(chain_, original, tied.copy);
    }
  }
}

// The split over "pp" is the innermost: it splits the rows that a split over tp leaves on this rank. Their
// number may differ between the ranks of tp.
void StageCut::split_over_stages(const Gangs& gangs) {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const ParameterPtr& original = parameters_[i].parameter;
    const int64_t rows = own_rows(*original, gangs);
    std::vector<int64_t> bounds(static_cast<size_t>(ranks_) + 1, 0);
    for (size_t r = static_cast<size_t>(holders_[i][0]) + 1; r < bounds.size(); ++r) bounds[r] = rows;
    original->layout.push_back(Placement::shard("pp", 0, std::move(bounds)));
  }
}

void StageCut::remove_others() {
  for (size_t s = 0; s < stages_.size(); ++s)
    for (size_t i = stages_[s].first; i < stages_[s].end && !is_local(static_cast<int>(s)); ++i)
      chain_.set_child(i, std::make_shared<RemoteModule>(*children_[i]));
}

void StageCut::undo() {
  for (size_t i = 0; i < children_.size(); ++i) chain_.set_child(i, children_[i]);
  for (const TiedParameter& tied : tied_)
    if (tied.copy != nullptr) replace_parameter(chain_, tied.copy, tied.original);
  for (const NamedParameter& p : parameters_)
    std::erase_if(p.parameter->layout, [](const Placement& placement) { return placement.axis == "pp"; });
}

namespace {

// A stage of another rank has its parameters as they were described, in the masters' dtype, and is asked in
// that dtype: what it computes in is that of this rank's stages.
void take_described_dtype(Specs& x, const Module& child) {
  const std::vector<NamedParameter> parameters = named_parameters(child);
  if (parameters.empty()) return;
  for (Spec& spec : x)
    if (is_floating(spec.dtype)) spec.dtype = spec_of(*parameters.front().parameter).dtype;
}

}  // namespace

Specs StageCut::output_specs(Context& ctx, int stage, Specs x) const {
  if (stage == last_stage()) return {};
  const StackScope scope(ctx.temporaries);
  const Stage& range = stages_[static_cast<size_t>(stage)];
  for (size_t i = range.first; i < range.end && !x.empty(); ++i) {
    const AllRowsLocal whole(*children_[i]);
    if (!is_local(stage)) take_described_dtype(x, *children_[i]);
    x = children_[i]->check_forward(ctx, x);
  }
  const DType computed = computed_dtype();
  for (Spec& y : x)
    if (is_floating(y.dtype) && computed != DType{}) y.dtype = computed;
  return x;
}

// The compute dtype of the first parameter on this rank; DType{} if this rank has none.
DType StageCut::computed_dtype() const {
  for (size_t i = 0; i < parameters_.size(); ++i)
    if (holders_[i][0] == rank_) return spec_of(*parameters_[i].parameter).dtype;
  return DType{};
}

std::vector<ParameterPtr> StageCut::remote_parameters() const {
  std::vector<ParameterPtr> out;
  for (size_t i = 0; i < parameters_.size(); ++i)
    if (holders_[i][0] != rank_) out.push_back(parameters_[i].parameter);
  return out;
}

}  // namespace gangway

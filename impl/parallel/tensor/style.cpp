#include "parallel/tensor/style.h"

#include <algorithm>

#include "nn/attention_core.h"
#include "nn/dropout.h"
#include "parallel/tensor/boundaries.h"
#include "parallel/tensor/fp8_scales.h"
#include "parallel/tensor/loss.h"
#include "parallel/tensor/row_sums.h"

namespace gangway {
namespace {

using Gathered = Redistribute::Gathered;

constexpr int kNoSplit = -1;

Module& inner_of(const StyledModule& styled) { return unwrapped(*styled.place.module); }

template <typename... Parts>
[[noreturn]] void refuse(const StyledModule& styled, const Parts&... parts) {
  fail(Code::invalid_argument, label(styled), ": ", parts...);
}

bool is_embedding(const Module& module) { return dynamic_cast<const Embedding*>(&module) != nullptr; }

RmsNorm* norm_of(const StyledModule& styled) { return dynamic_cast<RmsNorm*>(&inner_of(styled)); }
// The sinks of an attention core, one for each head, are split as the heads are.
bool splits_sinks(const StyledModule& styled) {
  return styled.row.style == TensorStyle::headwise &&
         dynamic_cast<const AttentionCore*>(&inner_of(styled)) != nullptr;
}

bool splits(TensorStyle style) { return style == TensorStyle::colwise || style == TensorStyle::rowwise; }

// Tells the linear layers in a module, whose adapters may have a dropout, which part of a value they get.
// The row of a module inside comes later and replaces it.
void set_input_parts(Module& module, const ValuePart& part) {
  if (auto* const linear = dynamic_cast<Linear*>(&module)) linear->set_input_part(part);
  for (const Module::Child& child : module.children()) set_input_parts(unwrapped(*child.module), part);
}

// Tells a dropout, and the linear layers, which part of a value they get.
void set_value_part(const StyledModule& styled, const Gang& gang) {
  ValuePart part{ValuePart::Along::none, gang.rank(), gang.size()};
  if (styled.row.style == TensorStyle::sequence_parallel) part.along = ValuePart::Along::sequence;
  if (styled.row.style == TensorStyle::headwise || styled.row.style == TensorStyle::rowwise)
    part.along = ValuePart::Along::width;
  if (auto* const dropout = dynamic_cast<Dropout*>(&inner_of(styled))) dropout->set_part(part);
  set_input_parts(inner_of(styled), part);
}

// Tells products in FP8 which dim of the weight is split.
void set_fp8_split(const StyledModule& styled, const GangPtr& gang) {
  const auto* const linear = dynamic_cast<const Linear*>(&inner_of(styled));
  if (linear == nullptr || linear->fp8() == nullptr || !splits(styled.row.style)) return;
  const auto dim = styled.row.style == TensorStyle::colwise ? Fp8Products::Dim::out : Fp8Products::Dim::in;
  linear->fp8()->set_split({dim, std::make_shared<SplitFp8Scales>(gang, Channel::tp)});
}

// Returns the dim of the weight that the style splits.
int split_dim(const StyledModule& styled) {
  if (!splits(styled.row.style)) return kNoSplit;
  if (norm_of(styled) != nullptr) return 0;
  const bool columns = styled.row.style == TensorStyle::colwise;
  return columns == is_embedding(inner_of(styled))
             ? 1
             : 0;  // the output dim of the weight is 1 in an embedding and 0 in a linear
}

const char* dim_name(const Module& module, int dim) {
  if (is_embedding(module)) return dim == 0 ? "rows" : "dim";
  if (dynamic_cast<const RmsNorm*>(&module) != nullptr) return "dim";
  return dim == 0 ? "out" : "in";
}

LmHead* head_around(const StyledModule& styled) {
  auto* head = dynamic_cast<LmHead*>(styled.place.parent);
  return head != nullptr && styled.place.index == LmHead::kOutput ? head : nullptr;
}

// Returns the pieces of the module's output, such as heads of attention, as its parent declares them.
DataFlow::Pieces pieces_of(const StyledModule& styled) {
  const std::optional<DataFlow> flow =
      styled.place.parent == nullptr ? std::nullopt : styled.place.parent->data_flow();
  if (flow)
    for (const DataFlow::Step& step : flow->steps)
      if (step.child == styled.place.index) return step.pieces;
  return {};
}

// Sums over the ranks and the loss take a vocabulary in parts of any size: the first ranks have one id more
// where the ranks do not divide it.
bool splits_vocabulary(const StyledModule& styled) {
  return styled.row.style == TensorStyle::rowwise
             ? is_embedding(inner_of(styled))
             : styled.row.style == TensorStyle::colwise && head_around(styled) != nullptr;
}

// What lies between modules in parts, such as heads, has equal parts.
void check_size(const StyledModule& styled, int ranks) {
  const Module& module = inner_of(styled);
  const int dim = split_dim(styled);
  const int64_t size = module.parameters()[0]->shape[dim];
  if (!splits_vocabulary(styled) && size % ranks != 0)
    refuse(styled, styled.place.path, " has ", dim_name(module, dim), " ", size, ", which tp ", ranks,
           " does not divide");
  if (size < ranks)
    refuse(styled, styled.place.path, " has ", dim_name(module, dim), " ", size, ", too few for tp ", ranks,
           ": each rank takes at least one");
}

// Refuses a split that cuts through a piece of the module's output.
void check_pieces(const StyledModule& styled, int ranks) {
  if (styled.row.style != TensorStyle::colwise && norm_of(styled) == nullptr) return;
  if (const DataFlow::Pieces pieces = pieces_of(styled); pieces.count % ranks != 0)
    refuse(styled, styled.place.path, " has ", pieces.count, " ", pieces.name, ", which tp ", ranks,
           " does not divide");
}

// A module that is headwise computes each head by itself, with all of its parameters. A linear or an
// embedding whose last dim is all heads makes them from the same input, so that it cannot be given a part of
// the heads.
void check_headwise(const StyledModule& styled) {
  const Module& module = inner_of(styled);
  const DataFlow::Pieces pieces = pieces_of(styled);
  if (is_embedding(module))
    refuse(styled, styled.place.path, " is an ", module.kind(),
           ", whose input has no heads; colwise splits it");
  if (pieces.count == 0 || dynamic_cast<const Linear*>(&module) == nullptr) return;
  const int64_t out = module.parameters()[0]->shape[0];
  if (out % pieces.count != 0)
    refuse(styled, styled.place.path, " has out ", out, ", which its ", pieces.count, " ", pieces.name,
           " do not divide");
  refuse(styled, styled.place.path, " makes all of its ", pieces.count, " ", pieces.name,
         " from one input of out ", out,
         "; headwise is for what computes each head by itself, and colwise splits this by heads");
}

void check_head(const StyledModule& styled) {
  if (styled.row.style == TensorStyle::replicate) return;
  if (styled.row.style != TensorStyle::colwise)
    refuse(styled, styled.place.path, " makes the logits; it can be colwise only");
  const ValueLayout output = layouts_of(styled).output;
  if (!(output == ValueLayout::shard(-1)) && !(output == ValueLayout::replicate()))
    refuse(styled, "output of ", styled.place.path, " is ", output.text(),
           ", but logits are Shard(-1) (loss parallelism) or Replicate");
}

// A bias that the layer hands out is as its parameter is: whole for rowwise, split as the product for
// colwise.
void check_bias_output(const StyledModule& styled, const RowLayouts& layouts) {
  const ValueLayout fits =
      styled.row.style == TensorStyle::rowwise ? ValueLayout::replicate() : ValueLayout::shard(-1);
  if (layouts.output == fits) return;
  refuse(styled, styled.place.path, " hands out its bias (skip_bias_add), which fits an output of ",
         fits.text(), ", not of ", layouts.output.text());
}

void check_moves(const StyledModule& styled, const ValueLayout& from, const ValueLayout& to,
                 const Gang& gang) {
  try {
    check_redistribution({from.over(kTensorAxis)}, {to.over(kTensorAxis)},
                         {{{kTensorAxis, gang.size(), gang.rank()}}});
  } catch (const Error& error) {
    refuse(styled, error.message());
  }
}

// Returns null if the two layouts are the same.
RedistributePtr move(const ValueLayout& from, const ValueLayout& to, const GangPtr& gang) {
  if (from == to) return nullptr;
  const bool gathers = from.kind == Placement::Kind::shard && to.kind != Placement::Kind::shard;
  return make_redistribute(from.over(kTensorAxis), to.over(kTensorAxis), gang, Channel::tp,
                           gathers ? Gathered::again : Gathered::kept);
}

bool gathers_sequence(const StyledModule& styled, const RowLayouts& l) {
  return head_around(styled) == nullptr && !is_embedding(inner_of(styled)) &&
         l.input == ValueLayout::shard(1) &&
         (l.takes == ValueLayout::varying() || l.takes == ValueLayout::replicate());
}

bool sums_sequence(const StyledModule& styled, const RowLayouts& l) {
  return styled.row.style == TensorStyle::rowwise && !is_embedding(inner_of(styled)) &&
         l.output == ValueLayout::shard(1);
}

// Returns the move of packed chunks, which are split on dim 0.
ChunkedMove chunked(bool moves, const ValueLayout& from, const ValueLayout& to, const GangPtr& gang,
                    int chunks) {
  if (!moves || chunks == 1) return {};
  return {make_redistribute(from.over(kTensorAxis), to.over(kTensorAxis), gang, Channel::tp), gang->size(),
          chunks};
}

// Returns the gather of codes, or null.
std::shared_ptr<CodedGather> coded(const StyledModule& styled, const RowLayouts& l, const GangPtr& gang) {
  if (!gathers_sequence(styled, l) || layers_that_share_codes(*styled.place.module).empty()) return nullptr;
  const auto gather = [&](int dim) { return move(ValueLayout::shard(dim), l.takes, gang); };
  return std::make_shared<CodedGather>(gather(1), gather(1), gather(2),
                                       std::make_shared<SplitFp8Scales>(gang, Channel::tp));
}

ModulePtr bounded(const ModulePtr& module, RedistributePtr before, RedistributePtr after,
                  ChunkedMove chunks = {}, std::vector<RedistributePtr> further = {},
                  std::shared_ptr<CodedGather> codes = nullptr) {
  if (before == nullptr && after == nullptr && further.empty()) return module;
  return std::make_shared<Boundaries>(module, std::move(before), std::move(after), std::move(chunks),
                                      std::move(further), std::move(codes));
}

ModulePtr partial_sum(const ModulePtr& module, RedistributePtr before, RedistributePtr sum,
                      ChunkedMove chunks) {
  if (sum == nullptr) return bounded(module, std::move(before), nullptr);
  if (const auto linear = std::dynamic_pointer_cast<Linear>(module))
    return std::make_shared<PartialSum>(linear, std::move(before), std::move(sum), std::move(chunks));
  return std::make_shared<PartialSum>(std::dynamic_pointer_cast<Embedding>(module), std::move(before),
                                      std::move(sum));
}

// Gives the head its loss, and gathers the logits of forwards without a loss.
ModulePtr split_head(const StyledModule& styled, LmHead& head, const GangPtr& gang) {
  const RowLayouts layouts = layouts_of(styled);
  const auto exchange = layouts.output == ValueLayout::shard(-1) ? SplitLoss::Exchange::statistics
                                                                 : SplitLoss::Exchange::logits;
  const std::vector<int64_t> bounds =
      balanced_bounds(inner_of(styled).parameters()[0]->shape[0], gang->size());
  RedistributePtr tokens =
      make_redistribute(layouts.input.over(kTensorAxis), layouts.takes.over(kTensorAxis), gang, Channel::tp);
  head.set_loss(std::make_shared<SplitLoss>(gang, Channel::tp, std::move(tokens), exchange, bounds));
  RedistributePtr logits =
      make_redistribute(Placement::shard(kTensorAxis, -1, bounds), Placement::replicate(kTensorAxis), gang,
                        Channel::tp, Gathered::again);
  return bounded(styled.place.module, move(layouts.input, layouts.takes, gang), std::move(logits));
}

// The layout of a factor of an adapter (nn/lora.h). A split of the output splits B, and a split of the input
// splits A. The other factor is whole, and each rank has a part of its gradient.
ParameterLayout adapter_layout(const StyledModule& styled, const Parameter& factor, bool is_a, int ranks) {
  const bool splits_input = styled.row.style == TensorStyle::rowwise;
  if (is_a != splits_input) return {Placement::replicate(kTensorAxis), true, label(styled)};
  const int dim = is_a ? 1 : 0;
  return {Placement::shard(kTensorAxis, dim, balanced_bounds(factor.shape[dim], ranks)), false,
          label(styled)};
}

}  // namespace

bool is_split(const Module& module) {
  return std::any_of(module.parameters().begin(), module.parameters().end(),
                     [](const ParameterPtr& p) { return find_axis(p->layout, kTensorAxis) != nullptr; });
}

std::string label(const StyledModule& styled) {
  return "plan row \"" + text(styled.row) + "\"" + (styled.source.empty() ? "" : " of " + styled.source);
}

RowLayouts layouts_of(const StyledModule& styled) {
  const PlanRow& row = styled.row;
  const bool ids = is_embedding(inner_of(styled));
  RowLayouts all{label(styled), row.style, {}, {}, {}, {}};
  switch (row.style) {
    case TensorStyle::replicate: return all;
    case TensorStyle::colwise:
      all.takes = ids ? ValueLayout::replicate() : ValueLayout::varying();
      all.output = all.makes = ValueLayout::shard(-1);
      break;
    case TensorStyle::rowwise:
      all.input = all.takes = ids ? ValueLayout::replicate() : ValueLayout::shard(-1);
      all.makes = ValueLayout::partial();
      if (norm_of(styled) != nullptr) all.makes = all.output = ValueLayout::shard(-1);
      break;
    case TensorStyle::sequence_parallel:
      all.input = all.takes = all.makes = all.output = ValueLayout::shard(1);
      break;
    case TensorStyle::headwise: all.input = all.takes = all.makes = all.output = ValueLayout::shard(2); break;
    case TensorStyle::prepare_input: all.takes = row.inner; break;
    case TensorStyle::prepare_output: all.makes = row.inner; break;
  }
  if (row.input) all.input = *row.input;
  if (row.output) all.output = *row.output;
  return all;
}

void check_style(const StyledModule& styled, const Gang& gang) {
  const Module& module = inner_of(styled);
  const RowLayouts layouts = layouts_of(styled);
  if (splits(styled.row.style)) {
    const auto* linear = dynamic_cast<const Linear*>(&module);
    const bool norm = norm_of(styled) != nullptr && styled.row.style == TensorStyle::rowwise;
    if (linear == nullptr && !is_embedding(module) && !norm)
      refuse(styled, styled.place.label, " is a ", module.kind(), "; ", name(styled.row.style),
             " splits a Linear or an Embedding",
             styled.row.style == TensorStyle::rowwise ? ", or an RMSNorm" : "");
    if (linear != nullptr && linear->bias() != nullptr && layouts.makes == ValueLayout::partial() &&
        layouts.output == ValueLayout::partial())
      refuse(styled, styled.place.path,
             " has a bias, which is added to the sum; its output cannot stay Partial");
    if (linear != nullptr && linear->skips_bias_add()) check_bias_output(styled, layouts);
    check_pieces(styled, gang.size());
    check_size(styled, gang.size());
  }
  if (styled.row.style == TensorStyle::headwise) check_headwise(styled);
  if (splits_sinks(styled) && !module.parameters().empty() &&
      module.parameters()[0]->shape[0] % gang.size() != 0)
    refuse(styled, styled.place.path, " has ", module.parameters()[0]->shape[0], " heads, which tp ",
           gang.size(), " does not divide");
  if (head_around(styled) != nullptr) check_head(styled);
  if (styled.row.style != TensorStyle::prepare_output)
    check_moves(styled, layouts.input, layouts.takes, gang);
  for (const std::optional<PlanRow::Further>& input : styled.row.further)
    if (input) check_moves(styled, input->comes, input->takes, gang);
  if (styled.row.style != TensorStyle::prepare_input)
    check_moves(styled, layouts.makes, layouts.output, gang);
}

ParameterLayout parameter_layout(const StyledModule& styled, size_t i, int ranks) {
  const bool of_parts =
      styled.row.style == TensorStyle::sequence_parallel || styled.row.style == TensorStyle::headwise;
  // A module inside of one with a sequence_parallel row has parameters where the outer module has none.
  if (of_parts && !splits_sinks(styled)) return {Placement::replicate(kTensorAxis), true, label(styled)};
  const Parameter& p = *inner_of(styled).parameters()[i];
  if (splits_sinks(styled))
    return {Placement::shard(kTensorAxis, 0, balanced_bounds(p.shape[0], ranks)), false, label(styled)};
  if (const auto* linear = dynamic_cast<const Linear*>(&inner_of(styled));
      linear != nullptr && splits(styled.row.style) && (&p == linear->lora_a() || &p == linear->lora_b()))
    return adapter_layout(styled, p, &p == linear->lora_a(), ranks);
  const bool weight = i == 0;
  const bool whole = !splits(styled.row.style) || (!weight && styled.row.style == TensorStyle::rowwise);
  ParameterLayout layout{Placement::replicate(kTensorAxis), false, label(styled)};
  if (whole) return layout;
  const int dim = weight ? split_dim(styled) : 0;
  layout.placement = Placement::shard(kTensorAxis, dim, balanced_bounds(p.shape[dim], ranks));
  return layout;
}

bool moves_sequence(const StyledModule& styled) {
  const RowLayouts layouts = layouts_of(styled);
  return gathers_sequence(styled, layouts) || sums_sequence(styled, layouts);
}

ModulePtr styled_module(const StyledModule& styled, const GangPtr& gang, int chunks) {
  set_fp8_split(styled, gang);
  const ModulePtr& module = styled.place.module;
  const RowLayouts layouts = layouts_of(styled);
  set_value_part(styled, *gang);
  const auto input = [&] { return move(layouts.input, layouts.takes, gang); };
  const auto output = [&] { return move(layouts.makes, layouts.output, gang); };
  const auto further = [&] {
    std::vector<RedistributePtr> moves;
    for (const std::optional<PlanRow::Further>& given : styled.row.further)
      moves.push_back(given ? move(given->comes, given->takes, gang) : nullptr);
    return moves;
  };
  const auto gathered = [&] {
    return chunked(gathers_sequence(styled, layouts), ValueLayout::shard(0), layouts.takes, gang, chunks);
  };
  const auto codes = [&] { return coded(styled, layouts, gang); };
  if (LmHead* const head = head_around(styled); head != nullptr && styled.row.style == TensorStyle::colwise)
    return split_head(styled, *head, gang);
  switch (styled.row.style) {
    case TensorStyle::replicate: return module;
    case TensorStyle::rowwise:
      if (RmsNorm* norm = norm_of(styled)) {
        norm->set_row_sums(std::make_shared<SplitRowSums>(gang, Channel::tp));
        return bounded(module, input(), output());
      }
      return partial_sum(
          module, input(), output(),
          chunked(sums_sequence(styled, layouts), layouts.makes, ValueLayout::shard(0), gang, chunks));
    case TensorStyle::colwise: return bounded(module, input(), output(), gathered(), {}, codes());
    case TensorStyle::sequence_parallel:
    case TensorStyle::headwise: return bounded(module, input(), output());
    case TensorStyle::prepare_input: return bounded(module, input(), nullptr, gathered(), further(), codes());
    case TensorStyle::prepare_output: return bounded(module, nullptr, output());
  }
  fail(Code::internal, "tensor style ", static_cast<int>(styled.row.style), " is unknown (0 to 6)");
}

}  // namespace gangway

// A plan of tensor parallelism as data: how each module of a tree is split over the ranks of tp, and the
// layouts of its inputs and outputs. A plan knows no gang; tensor/apply.h applies it.
//
// As text, a row is a line, and `#` starts a comment:
//
//   # pattern of paths             style
//   model.layers.*.self_attn         -> prepare_input(Shard(1), Varying)
//   model.layers.*.self_attn.q_proj  -> colwise, input Varying
//   model.layers.*.self_attn.o_proj  -> rowwise, output Shard(1)
//
// | style              | module            | it takes   | it makes  | parameters                          |
// |--------------------|-------------------|------------|-----------|-------------------------------------|
// | replicate          | any               | Replicate  | Replicate | whole on each rank                  |
// | colwise            | Linear            | Varying    | Shard(-1) | weight on dim 0, bias               |
// | colwise            | Embedding         | Replicate  | Shard(-1) | weight on dim 1                     |
// | rowwise            | Linear            | Shard(-1)  | Partial   | weight on dim 1; the bias is whole  |
// | rowwise            | Embedding         | Replicate  | Partial   | weight on dim 0, the vocabulary     |
// | sequence_parallel  | any, token by     | Shard(1)   | Shard(1)  | whole; each rank has a part of      |
// |                    | token (a norm)    |            |           | their gradients                     |
// | prepare_input(a,b) | any               | b          |           | as further rows say                 |
// | prepare_output(a,b)| any               |            | a         | as further rows say                 |
//
// `input L` is the layout in which the first input arrives, and `output L` is the layout in which the first
// output is wanted. Where these differ from the table, a redistribution converts (redistribution_plan.h). The
// default input is Shard(-1) for a rowwise Linear, Shard(1) for sequence_parallel, else Replicate. The
// default output is Shard(-1) for colwise, Shard(1) for sequence_parallel, else Replicate. `output local` is
// the layout that the module makes, and `output whole` is Replicate. prepare_input(a, b): the input arrives
// as a and the module takes b. prepare_output(a, b): the module makes a and b is wanted.
//
// Layouts: Replicate (all ranks have the same value and the same gradient), Varying (all ranks have the same
// value and use it differently, so its gradient is the sum of theirs), Partial (the value is the sum of the
// ranks' parts), Shard(d) (each rank has its part of dim d; -1 is the last dim).
//
// The lm_head of a language model is colwise. `output Shard(-1)` there means loss parallelism: in training no
// rank ever has full logits. With Replicate each chunk of logits is gathered. Logits without a loss are
// always gathered.
//
// Thread rule: values and pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/layout.h"

namespace gangway {

enum class TensorStyle : int32_t {
  replicate = 0,
  colwise = 1,
  rowwise = 2,
  sequence_parallel = 3,
  prepare_input = 4,
  prepare_output = 5,
};
const char* name(TensorStyle style) noexcept;

// A Placement without its axis.
struct ValueLayout {
  Placement::Kind kind = Placement::Kind::replicate;
  int dim = 0;  // of a shard; negative dims count from the end

  static ValueLayout replicate() { return {Placement::Kind::replicate, 0}; }
  static ValueLayout varying() { return {Placement::Kind::varying, 0}; }
  static ValueLayout partial() { return {Placement::Kind::partial, 0}; }
  static ValueLayout shard(int dim) { return {Placement::Kind::shard, dim}; }
  // Returns the placement over `axis`. A shard has no bounds, which means equal pieces.
  Placement over(const std::string& axis) const { return {kind, axis, dim, {}, false}; }
  std::string text() const;  // "Shard(1)"
  friend bool operator==(const ValueLayout&, const ValueLayout&) = default;
};

struct PlanRow {
  std::string pattern;  // of module paths, for path_matches (nn/module.h)
  TensorStyle style = TensorStyle::replicate;
  std::optional<ValueLayout> input, output;  // none: the style's default
  ValueLayout inner;  // the layout that the module takes (prepare_input) or makes (prepare_output)
  friend bool operator==(const PlanRow&, const PlanRow&) = default;
};

// INVALID_ARGUMENT names the line and its error.
std::vector<PlanRow> plan_from_text(std::string_view text);
// Makes a row from its parts. For prepare_input and prepare_output, `input` and `output` are the two layouts
// in the parentheses. INVALID_ARGUMENT names the part that the style does not take or that is missing.
PlanRow make_plan_row(std::string pattern, TensorStyle style, std::optional<ValueLayout> input,
                      std::optional<ValueLayout> output);
std::string text(const PlanRow& row);
// Returns one line for each row, with patterns padded to one width. plan_from_text reads the same rows back.
std::string plan_to_text(const std::vector<PlanRow>& rows);

struct LlamaPlanOptions {
  bool sequence_parallel = false;  // norms and residuals work on parts of the sequence
  bool loss_parallel = true;
  bool operator==(const LlamaPlanOptions&) const = default;
};
std::vector<PlanRow> llama_plan(const LlamaPlanOptions& options);

}  // namespace gangway

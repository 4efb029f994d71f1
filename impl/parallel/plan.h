// A tensor parallel plan as data: which module of a tree is split in which way over the ranks of tp, and the
// layouts of its inputs and outputs over them. It knows no gang; tensor/apply.h carries it out.
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
// | rowwise            | RMSNorm           | Shard(-1)  | Shard(-1) | weight; the sums over a row are     |
// |                    |                   |            |           | summed over the ranks               |
// | sequence_parallel  | any, token by     | Shard(1)   | Shard(1)  | whole; each rank has a part of      |
// |                    | token (a norm)    |            |           | their gradients                     |
// | headwise           | any, head by head | Shard(2)   | Shard(2)  | whole; each rank has a part of      |
// |                    | (a norm of q)     |            |           | their gradients                     |
// | prepare_input(a,b) | any               | b          |           | as further rows say                 |
// | prepare_output(a,b)| any               |            | a         | as further rows say                 |
//
// The ranks divide the dim that is split. A vocabulary alone (the rows of an Embedding, the out of an
// lm_head) need not divide: with V ids the first V % W of W ranks have one id more. It has an id for each
// rank.
//
// `input L` is the layout in which the module's first input comes, and `output L` the layout in which its
// first output is wanted. If they differ from what the table says, a redistribution (redistribution_plan.h)
// moves the value. The default input is Shard(-1) for a rowwise Linear or RMSNorm, Shard(1) for
// sequence_parallel, Shard(2) for headwise (of [batch, sequence, heads, width]), else Replicate. The default
// output is Shard(-1) for colwise and for a rowwise RMSNorm, Shard(1) for sequence_parallel, Shard(2) for
// headwise, else Replicate. `output local` is the layout that the module makes, and `output whole` is
// Replicate. prepare_input(a, b): the first input comes as a and the module takes b. Semicolons separate the
// pairs of further inputs, and an empty pair leaves its input as it comes: prepare_input(a, b; ; c, d)
// prepares the first and the third one. prepare_output(a, b): the module makes a and b is wanted.
//
// Layouts:
//   Replicate  All ranks have the same value, and the same gradient of it.
//   Varying    All ranks have the same value, but each computes on with it by itself: the gradient is the sum
//              of the ranks' gradients.
//   Partial    The value is the sum of the ranks' tensors.
//   Shard(d)   Each rank has its part of dim d; -1 is the last dim.
//
// The lm_head of a language model is colwise. There, `output Shard(-1)` means loss parallelism: training
// never has whole logits. With Replicate each chunk of logits is gathered. Logits without a loss are always
// whole.
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
  headwise = 6,
};
const char* name(TensorStyle style) noexcept;

// A Placement without its axis.
struct ValueLayout {
  Placement::Kind kind = Placement::Kind::replicate;
  int dim = 0;  // of a shard; a negative dim counts from the end

  static ValueLayout replicate() { return {Placement::Kind::replicate, 0}; }
  static ValueLayout varying() { return {Placement::Kind::varying, 0}; }
  static ValueLayout partial() { return {Placement::Kind::partial, 0}; }
  static ValueLayout shard(int dim) { return {Placement::Kind::shard, dim}; }
  // Returns the placement over an axis. A shard gets equal pieces.
  Placement over(const std::string& axis) const { return {kind, axis, dim, {}, false}; }
  std::string text() const;  // "Shard(1)"
  friend bool operator==(const ValueLayout&, const ValueLayout&) = default;
};

struct PlanRow {
  std::string pattern;  // of module paths, as in path_matches (nn/module.h)
  TensorStyle style = TensorStyle::replicate;
  std::optional<ValueLayout> input, output;  // none: the default of the style
  ValueLayout inner;  // prepare_input: the layout that the module takes; prepare_output: that it makes
  // prepare_input: how the inputs after the first come, and how the module takes them. None: as they come.
  struct Further {
    ValueLayout comes, takes;
    friend bool operator==(const Further&, const Further&) = default;
  };
  std::vector<std::optional<Further>> further = {};
  friend bool operator==(const PlanRow&, const PlanRow&) = default;
};

// Reads rows from text. INVALID_ARGUMENT names the line and what is wrong with it.
std::vector<PlanRow> plan_from_text(std::string_view text);
// Makes a row from its parts; prepare_input and prepare_output move from `input` to `output`.
// INVALID_ARGUMENT says which part the style does not take, or misses.
PlanRow make_plan_row(std::string pattern, TensorStyle style, std::optional<ValueLayout> input,
                      std::optional<ValueLayout> output);
std::string text(const PlanRow& row);
// Writes a line for each row, with patterns padded to one width. plan_from_text reads the same rows from it.
std::string plan_to_text(const std::vector<PlanRow>& rows);

}  // namespace gangway

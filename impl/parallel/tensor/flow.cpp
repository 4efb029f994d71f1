#include "parallel/tensor/flow.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "parallel/tensor/style.h"

namespace gangway {
namespace {

using Kind = Placement::Kind;

// A value between modules.
struct Value {
  std::optional<ValueLayout> layout;  // none: not known
  std::string from;                   // the name of its producer, for error texts
  // Whether a row says that the module which reads the value takes it as it is.
  bool is_declared = false;

  bool is(Kind kind) const { return layout && layout->kind == kind; }
};

class Flow {
 public:
  explicit Flow(const LayoutsOfModules& rows) : rows_(rows) {}

  // `parts`: the module lies in one with a sequence_parallel row, so that each rank has a part of the
  // gradients of its whole parameters, which the reduction sums.
  Value through(const Module& wrapped, const Value& in, bool parts = false) {
    const Module& module = unwrapped(wrapped);
    const auto found = rows_.find(&module);
    if (found == rows_.end()) return inside(module, in, parts, parts);
    const RowLayouts& row = found->second;
    const std::string who = row.row + " (" + name_of(module) + ")";
    const Value taken{row.takes, who, row.style == TensorStyle::prepare_input};
    if (row.style != TensorStyle::prepare_output) meet(in, {row.input, who});
    switch (row.style) {
      case TensorStyle::prepare_output: meet(inside(module, in, false, false), {row.makes, who}); break;
      case TensorStyle::prepare_input: return inside(module, taken, false, false);
      case TensorStyle::replicate: meet(inside(module, taken, false, false), {row.makes, who}); break;
      // Token by token: the module and those inside of it.
      case TensorStyle::sequence_parallel: meet(inside(module, taken, true, true), {row.makes, who}); break;
      // Only the module's own parameters are those of heads.
      case TensorStyle::headwise: meet(inside(module, taken, true, false), {row.makes, who}); break;
      case TensorStyle::colwise:
      case TensorStyle::rowwise: break;  // a layer, which style.cpp knows
    }
    return {row.output, who};
  }

  static void check_output(const Module& root, const Value& out) {
    if (out.is(Kind::partial) || out.is(Kind::varying))
      fail(Code::invalid_argument, "the output of ", name_of(root), " is ", out.layout->text(), ", which ",
           out.from, " gives, but what is made of it needs ",
           out.is(Kind::partial) ? "the sum of the ranks' tensors"
                                 : "the same gradient on all ranks, not one that is summed over them",
           "; give that row an output of Replicate");
  }

 private:
  static std::string name_of(const Module& module) {
    return module.full_name().empty() ? module.kind() : module.full_name();
  }

  static void meet(const Value& given, const Value& wanted) {
    if (!given.layout || !wanted.layout || same(*given.layout, *wanted.layout)) return;
    fail(Code::invalid_argument, wanted.from, " takes ", wanted.layout->text(), ", but ", given.from,
         " gives ", given.layout->text(), "; give one of them the other's layout");
  }
  static void check_alike(const Value& a, const Value& b, const Module& reader) {
    if (!a.layout || !b.layout || same(*a.layout, *b.layout)) return;
    fail(Code::invalid_argument, a.from, " gives ", a.layout->text(), ", but ", b.from, " gives ",
         b.layout->text(), ", and ", name_of(reader), " takes them together; give both one layout");
  }
  // Activations have three dims: batch, sequence, width. In a tensor [batch, sequence, heads, head width],
  // dim 2 counts the heads, so that a shard of dim 2 is a shard of the width in both forms.
  static bool same(const ValueLayout& a, const ValueLayout& b) {
    const auto dim = [](const ValueLayout& x) {
      return x.kind != Kind::shard ? 0 : x.dim < 0 ? x.dim + 3 : x.dim;
    };
    return a.kind == b.kind && dim(a) == dim(b);
  }

  // `own`: a row sums the gradients of the module's own whole parameters; `below`: of those inside, too.
  Value inside(const Module& module, const Value& in, bool own, bool below) {
    const std::optional<DataFlow> flow = module.data_flow();
    if (flow) return wired(module, *flow, in, own, below);
    if (module.children().empty()) return leaf(module, in, own);
    if (!has_row_below(module)) check_untouched(module, in, own && below);
    return {};
  }

  Value wired(const Module& module, const DataFlow& flow, const Value& in, bool own, bool below) {
    if (flow.is_nonlinear) check_no_partial(module, in);
    if (flow.mixes_tokens) check_whole_sequences(module, in);
    if (flow.counts_places && !rows_.contains(&module)) check_whole_value(module, in);
    if (!own) check_own_parameters(module, in);
    std::map<size_t, Value> values = {{DataFlow::kInput, {in.layout, in.from}}};
    const auto joined = [&](const std::vector<size_t>& names) {
      for (const size_t name : names) check_alike(values.at(name), values.at(names[0]), module);
      return values.at(names[0]);
    };
    for (const DataFlow::Step& step : flow.steps) {
      const Value read = joined(step.reads);
      if (step.through_nonlinear) check_no_partial(module, read);
      values[step.child] = through(module.child(step.child), read, below);
    }
    return joined(flow.output);
  }

  static void check_whole_sequences(const Module& module, const Value& in) {
    if (in.layout && (same(*in.layout, ValueLayout::shard(1)) || in.is(Kind::partial)))
      fail(Code::invalid_argument, name_of(module), " attends to whole sequences, but ", in.from, " gives ",
           in.layout->text());
  }

  static void check_no_partial(const Module& module, const Value& in) {
    if (in.is(Kind::partial))
      fail(Code::invalid_argument, name_of(module),
           " is not linear and takes the sum of the ranks' tensors, ", "but ", in.from,
           " gives Partial; give that row an output of Replicate or of a Shard");
  }

  // An addend of the whole value has every place, so that Partial is no matter.
  static void check_whole_value(const Module& module, const Value& in) {
    if (in.is(Kind::shard))
      fail(Code::invalid_argument, "the plan has no row for ", name_of(module),
           ", whose random bits follow from the place of each number, and ", in.from, " gives it ",
           in.layout->text(),
           "; give it a row (sequence_parallel for parts of the sequence, headwise for parts of the width)");
  }

  static Value leaf(const Module& module, const Value& in, bool own) {
    if (is_split(module)) return {};
    if (module.parameters().empty()) {
      if (!in.is_declared) check_no_partial(module, in);
      return {};
    }
    if (own) return {in.layout, name_of(module)};
    if (!module.is_linear()) check_no_partial(module, in);
    check_own_parameters(module, in);
    return {ValueLayout::replicate(), name_of(module)};
  }

  bool has_row_below(const Module& module) const {
    return std::any_of(module.children().begin(), module.children().end(), [&](const Module::Child& child) {
      const Module& inner = unwrapped(*child.module);
      return rows_.contains(&inner) || has_row_below(inner);
    });
  }

  // A module that declares no data flow, and whose children have no rows: nothing inside of it moves values
  // between ranks, so that every parameter in it meets the layout of its input.
  static void check_untouched(const Module& module, const Value& in, bool summed) {
    if (!in.is_declared) check_no_partial(module, in);
    if (!summed) check_parameters_below(module, in);
  }
  static void check_parameters_below(const Module& module, const Value& in) {
    if (is_split(module)) return;
    check_own_parameters(module, in);
    for (const Module::Child& child : module.children()) check_parameters_below(unwrapped(*child.module), in);
  }

  // A module without a row keeps whole parameters. If its input is not Replicate, each rank makes a part of
  // their gradients.
  static void check_own_parameters(const Module& module, const Value& in) {
    if (module.parameters().empty() || is_split(module)) return;
    if (in.layout && in.layout->kind != Kind::replicate)
      fail(Code::invalid_argument, "the plan has no row for ", name_of(module),
           ", whose parameters are Replicate, and ", in.from, " gives it ", in.layout->text(),
           ", so that each rank makes a part of their gradients and nothing sums them; give it a row "
           "(sequence_parallel for a norm on parts of the sequence, headwise for the sinks of attention)");
  }

  const LayoutsOfModules& rows_;
};

}  // namespace

void check_layouts(const Module& root, const LayoutsOfModules& rows) {
  const Value out = Flow(rows).through(root, {ValueLayout::replicate(), "the model's input"});
  Flow::check_output(root, out);
}

}  // namespace gangway

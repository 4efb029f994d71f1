#include "parallel/tensor/flow.h"

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
};

class Flow {
 public:
  explicit Flow(const LayoutsOfModules& rows) : rows_(rows) {}

  Value through(const Module& wrapped, const Value& in) {
    const Module& module = unwrapped(wrapped);
    const auto found = rows_.find(&module);
    if (found == rows_.end()) return inside(module, in);
    const RowLayouts& row = found->second;
    const std::string who = row.row + " (" + name_of(module) + ")";
    if (row.style == TensorStyle::prepare_output) {
      meet(inside(module, in), {row.makes, who});
      return {row.output, who};
    }
    meet(in, {row.input, who});
    if (row.style == TensorStyle::prepare_input) return inside(module, {row.takes, who});
    return {row.output, who};
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

  Value inside(const Module& module, const Value& in) {
    const std::optional<DataFlow> flow = module.data_flow();
    if (flow) return wired(module, *flow, in);
    return module.children().empty() ? leaf(module, in) : Value{};
  }

  Value wired(const Module& module, const DataFlow& flow, const Value& in) {
    if (flow.mixes_tokens) check_whole_sequences(module, in);
    if (flow.counts_places) check_whole_value(module, in);
    check_own_parameters(module, in);
    std::map<size_t, Value> values = {{DataFlow::kInput, in}};
    const auto joined = [&](const std::vector<size_t>& names) {
      for (const size_t name : names) check_alike(values.at(name), values.at(names[0]), module);
      return values.at(names[0]);
    };
    for (const DataFlow::Step& step : flow.steps)
      values[step.child] = through(module.child(step.child), joined(step.reads));
    return joined(flow.output);
  }

  static void check_whole_sequences(const Module& module, const Value& in) {
    if (in.layout && (same(*in.layout, ValueLayout::shard(1)) || in.layout->kind == Kind::partial))
      fail(Code::invalid_argument, name_of(module), " attends to whole sequences, but ", in.from, " gives ",
           in.layout->text());
  }

  static void check_whole_value(const Module& module, const Value& in) {
    if (in.layout && (in.layout->kind == Kind::shard || in.layout->kind == Kind::partial))
      fail(Code::invalid_argument, "the plan has no row for ", name_of(module),
           ", whose random bits follow from the place of each number, and ", in.from, " gives it ",
           in.layout->text(),
           "; give it a row (sequence_parallel for parts of the sequence, headwise for parts of the width)");
  }

  static Value leaf(const Module& module, const Value& in) {
    if (module.parameters().empty() || is_split(module)) return {};
    check_own_parameters(module, in);
    return {ValueLayout::replicate(), name_of(module)};
  }

  // A module without a row keeps whole parameters.
  static void check_own_parameters(const Module& module, const Value& in) {
    if (module.parameters().empty() || is_split(module)) return;
    if (in.layout && in.layout->kind != Kind::replicate)
      fail(Code::invalid_argument, "the plan has no row for ", name_of(module),
           ", which has parameters, and ", in.from, " gives it ", in.layout->text(),
           "; give it a row (sequence_parallel for a norm on parts of the sequence, headwise for the sinks "
           "of ",
           "attention)");
  }

  const LayoutsOfModules& rows_;
};

}  // namespace

void check_layouts(const Module& root, const LayoutsOfModules& rows) {
  Flow(rows).through(root, {ValueLayout::replicate(), "the model's input"});
}

}  // namespace gangway

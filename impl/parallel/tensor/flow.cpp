#include "parallel/tensor/flow.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "nn/attention_core.h"
#include "parallel/tensor/style.h"

namespace gangway {
namespace {

using Kind = Placement::Kind;

// A value between modules; none: not known.
struct Value {
  std::optional<ValueLayout> layout;
  std::string from;  // in words
};

// What a child reads: the outputs of others, "" is the module's own input.
struct Wire {
  const char* child;
  std::vector<const char*> from;
};
struct Wiring {
  const char* kind;
  std::vector<Wire> wires;
  std::vector<const char*> output;  // which must lie alike
};

const std::vector<Wiring>& wirings() {
  static const std::vector<Wiring> all = {
      {"Block",
       {{"input_layernorm", {""}},
        {"self_attn", {"input_layernorm"}},
        {"post_attention_layernorm", {"self_attn", ""}},
        {"mlp", {"post_attention_layernorm"}}},
       {"mlp", "post_attention_layernorm"}},
      {"Attention",
       {{"q_proj", {""}},
        {"k_proj", {""}},
        {"v_proj", {""}},
        {"core_attention", {"q_proj", "k_proj", "v_proj"}},
        {"o_proj", {"core_attention"}}},
       {"o_proj"}},
      {"Mlp",
       {{"gate_proj", {""}}, {"up_proj", {""}}, {"down_proj", {"gate_proj", "up_proj"}}},
       {"down_proj"}},
      {"LmHead", {{"model.norm", {""}}, {"lm_head", {"model.norm"}}}, {"lm_head"}},
  };
  return all;
}

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
  // Activations have three dims here.
  static bool same(const ValueLayout& a, const ValueLayout& b) {
    const auto dim = [](const ValueLayout& x) {
      return x.kind != Kind::shard ? 0 : x.dim < 0 ? x.dim + 3 : x.dim;
    };
    return a.kind == b.kind && dim(a) == dim(b);
  }

  Value inside(const Module& module, const Value& in) {
    const std::string kind = module.kind();
    if (kind == "Llama" || kind == "Sequential") {
      Value x = in;
      for (const Module::Child& child : module.children()) x = through(*child.module, x);
      return x;
    }
    for (const Wiring& wiring : wirings())
      if (kind == wiring.kind) return wired(module, wiring, in);
    if (!module.children().empty()) return {};
    return leaf(module, in);
  }

  Value wired(const Module& module, const Wiring& wiring, const Value& in) {
    std::map<std::string, Value> values = {{"", in}};
    const auto joined = [&](const std::vector<const char*>& names) {
      for (const char* name : names) check_alike(values.at(name), values.at(names[0]), module);
      return values.at(names[0]);
    };
    for (const Wire& wire : wiring.wires) {
      const Value x = joined(wire.from);
      const auto child = std::find_if(module.children().begin(), module.children().end(),
                                      [&](const Module::Child& c) { return c.name == wire.child; });
      values[wire.child] = child == module.children().end() ? Value{} : through(*child->module, x);
    }
    return joined(wiring.output);
  }

  static Value leaf(const Module& module, const Value& in) {
    if (dynamic_cast<const AttentionCore*>(&module) != nullptr) {
      if (in.layout && (same(*in.layout, ValueLayout::shard(1)) || in.layout->kind == Kind::partial))
        fail(Code::invalid_argument, name_of(module), " attends to whole sequences, but ", in.from, " gives ",
             in.layout->text());
      return in;
    }
    if (module.parameters().empty() || is_split(module)) return {};
    if (in.layout && in.layout->kind != Kind::replicate)
      fail(Code::invalid_argument, "the plan has no row for ", name_of(module),
           ", which has parameters, and ", in.from, " gives it ", in.layout->text(),
           "; give it a row (sequence_parallel for a norm on parts of the sequence)");
    return {ValueLayout::replicate(), name_of(module)};
  }

  const LayoutsOfModules& rows_;
};

}  // namespace

void check_layouts(const Module& root, const LayoutsOfModules& rows) {
  Flow(rows).through(root, {ValueLayout::replicate(), "the model's input"});
}

}  // namespace gangway

// The nn layer. Belongs here: parameters, frames, and layers with their meaning on a single device. Does not: gangs,
// shards, optimizers; they wrap or read what is here.
//
// A module: parameters, children, and its meaning on a single device. It never learns that gangs exist; parallelism
// wraps it.
//
// Memory rule for forward and backward, so that temporaries are a stack: allocate the outputs first (make_output,
// Frame::allocate_gradient), then open a StackScope on ctx.temporaries for everything else.
//
// Thread rule: one thread at a time; describing a model (children, names) is not concurrent with running it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/facts.h"
#include "base/tracer.h"
#include "nn/arriving.h"
#include "nn/frame.h"
#include "nn/parameter.h"
#include "ops/ops.h"

namespace gangway {

// What a call of forward or backward needs besides its tensors.
struct Context {
  Ops& ops;
  Stream& stream;
  Stack& temporaries;
  bool training = false;      // gradients will be wanted (a null frame then means: recomputed later)
  bool recomputing = false;   // this forward repeats an earlier one
  bool defer_weight = false;  // weight halves run later (run_weight_gradients is the runner's)
  double loss_scale = 1;      // loss scale / N: what backward of a loss starts with
  // A frame's loss is made by its backward, in one pass with its gradients; forward gives the memory for it. For a runner
  // that reads losses after backward; modules that read them in forward switch it off for those below.
  bool fused_loss = false;
  uint64_t seed = 0;  // the run's; a custom module's call seed is derived from it
  int64_t step = 0;
  int microbatch = 0;
  int64_t data_index = 0;             // data coordinate
  void* caller = nullptr;             // opaque: set by capi, handed through
  Tracer* tracer = nullptr;           // gets what modules do; null: none
  ArrivingInput* arriving = nullptr;  // for the module that reads it first; null: all inputs are there
};

using Values = std::vector<Tensor>;

// What a tensor is.
struct Spec {
  DType dtype = DType{};  // DType{}: an absent tensor
  Shape shape;
  std::string text() const;
};
using Specs = std::vector<Spec>;
// What an input of ids may hold: 0 to size - 1, or `ignore`. Who takes it from outside checks it (nn/ids.h).
struct IdRule {
  static constexpr int64_t kNone = INT64_MIN;
  const char* what = nullptr;  // "token id"; null: no input of ids
  int64_t size = -1;           // -1: any
  int64_t ignore = kNone;
};
Spec spec_of(const Tensor& tensor);
Specs specs_of(std::span<const Tensor> tensors);

class Module : public std::enable_shared_from_this<Module> {
 public:
  struct Child {
    std::string name;  // may hold dots ("model.layers.0"); empty: adds nothing to the path
    std::shared_ptr<Module> module;
  };

  virtual ~Module() = default;
  virtual const char* kind() const = 0;  // "Linear"
  // A wrapper adds no component to names and has exactly one child, index 0, name "".
  virtual bool is_wrapper() const { return false; }
  // Reads its children's parameters itself: they cannot be units of their own.
  virtual bool computes_children() const { return false; }
  // Multiplies activations with its parameters, which must have their dtype.
  virtual bool is_linear() const { return false; }
  // Whether backward reads the values of its or its children's parameters: a look-up's does not.
  virtual bool backward_reads_values() const {
    return is_wrapper() ? child(0).backward_reads_values() : true;
  }
  // The child that reads the first input before anything else does. Null: there is none, or it is not known.
  virtual const Module* first_reader() const { return nullptr; }
  // A layer of a deep model: what recomputation takes as one.
  virtual bool is_block() const { return false; }

  // Rules for the first inputs; further ones have none. A wrapper has those of what it wraps.
  virtual std::vector<IdRule> id_rules() const {
    return is_wrapper() ? child(0).id_rules() : std::vector<IdRule>();
  }

  // How it wants the modules below it to be split over ranks, as text: rows of a tensor parallel plan, with paths that
  // start at this module. Here it is only handed through. Empty: it has no opinion.
  virtual std::string parallel_plan() const { return {}; }

  // What changes its numbers besides its parameters: an eps, a number of heads. Ranks compare it.
  virtual void add_options(Facts&) const {}

  // How many outputs forward makes of so many inputs, and how many gradients (absent ones too) backward makes: what a
  // caller's room is compared with before either runs.
  virtual size_t output_count(size_t /*inputs*/) const { return 1; }
  virtual size_t gradient_count() const { return 1; }

  // Throws what forward would refuse of such inputs, before any of it runs and without its parameters' values; gives what
  // the outputs will be. None: that is not known, and the modules behind are not checked. `ctx.training`: with a frame.
  virtual Specs check_forward(Context& ctx, std::span<const Spec> inputs);
  // inputs -> outputs. Saves in `frame` what backward needs (null: nothing).
  virtual Values forward(Context& ctx, std::span<const Tensor> inputs, Frame* frame) = 0;
  // Input half: gradients of the outputs (absent: zero) -> gradients of the inputs (absent: none, as for integers).
  // dy lies in frame's gradient stack, so do the results; weight work is pushed into the frame.
  virtual Values backward(Context& ctx, std::span<const Tensor> dy, Frame& frame) = 0;
  // One task pushed by backward.
  virtual void backward_weight(Context& ctx, Frame& frame, int index, const Tensor& dy);
  // Makes output `index` of the last forward in `frame` again, in the frame's gradient stack.
  virtual Tensor recompute(Context& ctx, Frame& frame, int index);

  // Tensors that it made at first use and keeps, parameters apart (rotary angles); modules may share them.
  virtual Values tables() const { return {}; }

  // The common case of one input and one output.
  Tensor forward1(Context& ctx, const Tensor& x, Frame* frame) {
    const TraceSpan span = this->span(ctx, ctx.recomputing ? "recompute" : "forward");
    return forward(ctx, std::span<const Tensor>(&x, 1), frame).at(0);
  }
  Tensor backward1(Context& ctx, const Tensor& dy, Frame& frame) {
    const TraceSpan span = this->span(ctx, "backward");
    return backward(ctx, std::span<const Tensor>(&dy, 1), frame).at(0);
  }
  // In the trace, to the end of the scope.
  TraceSpan span(const Context& ctx, const char* what) const {
    return {ctx.tracer, TraceRow::compute, what, full_name_.empty() ? std::string_view(kind()) : full_name_};
  }

  const std::vector<Child>& children() const { return children_; }
  Module& child(size_t i) const { return *children_[i].module; }
  void set_child(size_t i, std::shared_ptr<Module> module) { children_[i].module = std::move(module); }
  const std::vector<ParameterPtr>& parameters() const { return parameters_; }  // its own, without children's
  void set_parameter(size_t i, ParameterPtr parameter) { parameters_[i] = std::move(parameter); }  // tying

  // Path in the whole model, set by assign_full_names; empty for the root and before. Does not change when the tree is
  // cut or wrapped later.
  const std::string& full_name() const { return full_name_; }
  void set_full_name(std::string name) { full_name_ = std::move(name); }

 protected:
  void add_child(std::string name, std::shared_ptr<Module> module);
  ParameterPtr add_parameter(std::string name, const Shape& shape, Init init);

 private:
  std::vector<Child> children_;
  std::vector<ParameterPtr> parameters_;
  std::string full_name_;
};

using ModulePtr = std::shared_ptr<Module>;

// Output of a forward: in the frame, or without one in the context's temporaries (the caller's scope).
Tensor make_output(Context& ctx, Frame* frame, DType dtype, const Shape& shape);

// None for an absent tensor.
std::vector<DType> dtypes_of(std::span<const Tensor> values);

// --- walking a tree --------------------------------------------------------------------------------------------------

struct NamedParameter {
  std::string name;  // whole: "model.layers.0.self_attn.q_proj.weight"
  ParameterPtr parameter;
};
// In order of the tree; a tied parameter once, under its first name.
std::vector<NamedParameter> named_parameters(const Module& root);
// Also the later names of tied parameters (aliases for look-up and load).
std::vector<NamedParameter> named_parameters_with_aliases(const Module& root);

struct NamedModule {
  std::string path;
  Module* parent = nullptr;  // null for the root
  size_t index = 0;          // in the parent's children
  ModulePtr module;
};
// Root first (path ""), wrappers by the path of what they wrap, outermost first.
std::vector<NamedModule> named_modules(const ModulePtr& root);

// Adds what replicas of the tree must have alike: kinds, names and options of modules, shapes, element types and first
// values of parameters.
void add_facts(const ModulePtr& root, Facts& facts);

// Writes every module's and parameter's full name. Called on the whole model, before it is cut into stages.
void assign_full_names(Module& root);

// The module under all wrappers.
Module& unwrapped(Module& module);
const Module& unwrapped(const Module& module);

// Seed of one call of a module: the same when it is recomputed, another one for every module, step, microbatch and data
// coordinate. With low64(b) = b[0] + 2^32 b[1]:
//   low64(philox(low64(philox(philox_key(ctx.seed, module_name), step)), microbatch + 2^32 data_index)).
uint64_t call_seed(const Context& ctx, std::string_view module_name);

// Does `pattern` match `path`? `*` stays within one dot-separated component; components must be equal in number.
// The pattern "**" matches everything.
bool path_matches(std::string_view pattern, std::string_view path);

// --- storage on one device -------------------------------------------------------------------------------------------

// Fills `box` of the parameter into `out` (row-major, out's dtype) from its initialiser; the key is
// philox_key(seed, full_name). Element i of the whole tensor decides its value, so boxes of any split agree.
void initialize_box(Ops& ops, Stream& stream, const Parameter& parameter, uint64_t seed, const Box& box,
                    const Tensor& out);

// Gives every parameter of the tree whole storage (value == shard, grad == shard_grad) and first values. For a model
// that is not sharded; sharded models get theirs from parallel. Assigns full names.
void materialize(Module& root, Ops& ops, uint64_t seed);

}  // namespace gangway

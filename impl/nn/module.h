// The nn layer holds parameters, frames, and layers with their meaning on a single device. Gangs, shards and
// optimizers do not belong here; they wrap or read what is here.
//
// A module has parameters, children, and a meaning on a single device. It knows nothing of gangs; parallelism
// wraps it.
//
// Memory rule for forward and backward, because temporaries are a stack: allocate the outputs first
// (make_output, Frame::allocate_gradient), then open a StackScope on ctx.temporaries for everything else.
//
// Thread rule: one thread at a time; nothing reads or changes children and names while the model runs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/call_signature.h"
#include "base/tracer.h"
#include "nn/arriving.h"
#include "nn/data_flow.h"
#include "nn/frame.h"
#include "nn/parameter.h"
#include "ops/ops.h"

namespace gangway {

class Documents;
class KvCache;

// The arguments of a forward or backward besides its tensors.
struct Context {
  Ops& ops;
  Stream& stream;
  Stack& temporaries;
  bool training = false;      // a backward will follow (with a null frame: after this forward was recomputed)
  bool recomputing = false;   // this forward repeats an earlier one
  bool defer_weight = false;  // whoever runs the model calls run_weight_gradients later; containers do not
  double loss_scale = 1;      // loss scale / N: backward of a loss starts from it
  // With a frame, backward makes the loss in one pass with its gradients, and forward only allocates it. For
  // a runner that reads losses after backward. A module that reads a loss in forward clears the flag for its
  // children.
  bool fused_loss = false;
  uint64_t seed = 0;  // of the run; the seed of a custom module's call is derived from it
  int64_t step = 0;
  int microbatch = 0;
  int rows = 0;        // of this microbatch; 0: not known
  int data_index = 0;  // this rank's data coordinate: ranks with the same one share a batch
  // The place of the microbatch's first row in the global batch, where the rows of data coordinate 0 come
  // first, however many each coordinate has. Dropout's bits follow from it.
  int64_t first_row = 0;
  void* caller = nullptr;             // opaque: capi sets it, and it reaches the phases of custom modules
  Tracer* tracer = nullptr;           // records the spans of modules; null: none
  ArrivingInput* arriving = nullptr;  // an input that is still arriving; null: all inputs are complete
  // The documents and positions of this microbatch's rows (nn/documents.h). Null: each row is one document,
  // with positions 0, 1, 2, ...
  const Documents* documents = nullptr;
  // The keys and values of earlier tokens, which attention reads and extends (nn/kv_cache.h). Null: none.
  KvCache* cache = nullptr;
  double label_smoothing = 0, z_loss = 0;  // of the losses of heads (LossTerms)
  bool log_probs = false;  // the loss of a head has a third output: the log-probability of each label
};

using Values = std::vector<Tensor>;

// The dtype and shape of a tensor.
struct Spec {
  DType dtype = DType{};  // DType{}: the tensor is absent
  Shape shape;
  std::string text() const;
};
using Specs = std::vector<Spec>;
// The values that an input of ids may have: 0 to size - 1, or `ignore`. Functions that receive the input from
// a caller check it (nn/ids.h).
struct IdRule {
  static constexpr int64_t kNone = INT64_MIN;
  const char* what = nullptr;  // "token id", for messages; null: the input has no ids
  int64_t size = -1;           // -1: any value
  int64_t ignore = kNone;
};
Spec spec_of(const Tensor& tensor);
Specs specs_of(std::span<const Tensor> tensors);

class Module : public std::enable_shared_from_this<Module> {
 public:
  struct Child {
    std::string name;  // may have dots ("model.layers.0"); empty: adds nothing to the path
    std::shared_ptr<Module> module;
  };

  virtual ~Module() = default;
  virtual const char* kind() const = 0;  // name of the class in messages, such as "Linear"
  // A wrapper adds no component to names and has exactly one child, index 0, name "".
  virtual bool is_wrapper() const { return false; }
  // Whether the module reads its children's parameters itself. Such children cannot be parameter groups of
  // their own.
  virtual bool reads_child_parameters() const { return false; }
  // Whether the module multiplies activations with its parameters, so that both must have one dtype.
  virtual bool is_linear() const { return false; }
  // Whether backward reads the values of the parameters of the module or its children. An embedding's does
  // not.
  virtual bool backward_reads_values() const {
    return is_wrapper() ? child(0).backward_reads_values() : true;
  }
  // Declares how values go through the module's children. None: that is not known, as for a custom module.
  virtual std::optional<DataFlow> data_flow() const { return std::nullopt; }
  // Whether the module is a layer of a deep model, which activation checkpointing recomputes as one.
  virtual bool is_block() const { return false; }

  // Returns the rules of the first inputs; further inputs have none. A wrapper has the rules of the module it
  // wraps.
  virtual std::vector<IdRule> id_rules() const {
    return is_wrapper() ? child(0).id_rules() : std::vector<IdRule>();
  }

  // Returns how tensor parallelism should split the modules below this one: the rows of a plan as text, with
  // paths that start at this module. Empty: no rows. nn does not interpret the text; parallel/tensor does.
  virtual std::string parallel_plan() const { return {}; }

  // Adds the options that change the module's results besides its parameters, such as an eps or a number of
  // heads. Ranks compare them.
  virtual void add_options(CallSignature&) const {}

  // Return how many outputs forward makes from that many inputs, and how many gradients backward makes,
  // absent ones included. The C layer compares the caller's arrays with these numbers before forward or
  // backward runs.
  virtual size_t output_count(size_t /*inputs*/) const { return 1; }
  virtual size_t gradient_count() const { return 1; }

  // Throws the error that forward would throw for such inputs, before forward runs and without the
  // parameters' values. Returns the specs of the outputs; empty: they are not known, and later modules are
  // not checked. With ctx.training it checks a forward with a frame.
  virtual Specs check_forward(Context& ctx, std::span<const Spec> inputs);
  // Computes the outputs. Saves in `frame` what backward needs; a null frame saves nothing.
  virtual Values forward(Context& ctx, std::span<const Tensor> inputs, Frame* frame) = 0;
  // The input half: takes gradients of the outputs (absent: zero) and returns gradients of the inputs
  // (absent: there is none, as for integers). dy and the results lie in the frame's gradient stack; the
  // module pushes its weight tasks into the frame.
  virtual Values backward(Context& ctx, std::span<const Tensor> dy, Frame& frame) = 0;
  // Does what backward() does for a module with one input and one output, but adds the input's gradient to
  // dx: the gradient that another reader of the same input has made. The default adds what backward returns.
  // A module whose products can add overrides it, which saves the temporary and the addition.
  virtual void add_backward(Context& ctx, const Tensor& dy, Frame& frame, const Tensor& dx);
  // Runs one weight task that backward pushed.
  virtual void backward_weight(Context& ctx, Frame& frame, int index, const Tensor& dy);
  // Recomputes tensor `index` that the last forward in `frame` announced as recomputable, in the frame's
  // gradient stack.
  virtual Tensor recompute(Context& ctx, Frame& frame, int index);

  // Returns tensors other than parameters that the module makes at first use and keeps (rotary angles).
  // Modules may share them.
  virtual Values tables() const { return {}; }

  // forward, backward and add_backward of a module with one input and one output, with a span in the trace.
  Tensor forward_one(Context& ctx, const Tensor& x, Frame* frame) {
    const TraceSpan span = this->span(ctx, ctx.recomputing ? "recompute" : "forward");
    return forward(ctx, std::span<const Tensor>(&x, 1), frame).at(0);
  }
  Tensor backward_one(Context& ctx, const Tensor& dy, Frame& frame) {
    const TraceSpan span = this->span(ctx, "backward");
    return backward(ctx, std::span<const Tensor>(&dy, 1), frame).at(0);
  }
  void add_backward_one(Context& ctx, const Tensor& dy, Frame& frame, const Tensor& dx) {
    const TraceSpan span = this->span(ctx, "backward");
    add_backward(ctx, dy, frame, dx);
  }
  // Returns a span of the trace that ends with its scope.
  TraceSpan span(const Context& ctx, const char* what) const {
    return {ctx.tracer, TraceRow::compute, what, full_name_.empty() ? std::string_view(kind()) : full_name_};
  }

  const std::vector<Child>& children() const { return children_; }
  Module& child(size_t i) const { return *children_[i].module; }
  void set_child(size_t i, std::shared_ptr<Module> module) { children_[i].module = std::move(module); }
  const std::vector<ParameterPtr>& parameters() const { return parameters_; }  // without those of children
  // Replaces a parameter, so that modules share one (tied weights).
  void set_parameter(size_t i, ParameterPtr parameter) { parameters_[i] = std::move(parameter); }

  // Path in the whole model, set by assign_full_names; empty for the root, and before it is set. Cutting or
  // wrapping the tree later does not change it.
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

// Allocates an output of a forward: in the frame if there is one, else in the context's temporaries.
Tensor make_output(Context& ctx, Frame* frame, DType dtype, const Shape& shape);

// Returns the dtype of each tensor; DType{} for an absent one.
std::vector<DType> dtypes_of(std::span<const Tensor> values);

// --- walking a tree ----------------------------------------------------------------------------------------

struct NamedParameter {
  std::string name;  // with its path: "model.layers.0.self_attn.q_proj.weight"
  ParameterPtr parameter;
};
// Returns the parameters in the order of the tree; a tied parameter once, under its first name.
std::vector<NamedParameter> named_parameters(const Module& root);
// The same, with a tied parameter under each of its names (for look-up and load).
std::vector<NamedParameter> named_parameters_with_aliases(const Module& root);

struct NamedModule {
  std::string path;
  Module* parent = nullptr;  // null for the root
  size_t index = 0;          // in the parent's children
  ModulePtr module;
};
// Returns the root first (path ""). A wrapper has the path of the module it wraps and comes before it.
std::vector<NamedModule> named_modules(const ModulePtr& root);

// Adds what must be equal in all replicas of the tree: kinds, names and options of modules; shapes, dtypes
// and initialisers of parameters.
void add_to_signature(const ModulePtr& root, CallSignature& signature);

// Sets the full name of every module and parameter. Call it on the whole model, before it is cut into stages.
void assign_full_names(Module& root);

// Returns the child that reads the first input before anything else does. Null: there is none, or the module
// declares no data flow.
const Module* first_reader(const Module& module);

// Returns the module inside all wrappers.
Module& unwrapped(Module& module);
const Module& unwrapped(const Module& module);

// Returns the seed of one call of a module. A recomputation has the same seed; every module, step, microbatch
// and data coordinate has another one. With low64(b) = b[0] + 2^32 b[1] it is
//   low64(philox(low64(philox(philox_key(ctx.seed, module_name), step)), microbatch + 2^32 data_index)).
uint64_t call_seed(const Context& ctx, std::string_view module_name);
// Returns the seed of one step of a module, the same one on every mesh and for every microbatch:
//   low64(philox(philox_key(ctx.seed, module_name), step)).
uint64_t step_seed(const Context& ctx, std::string_view module_name);

// Returns whether `pattern` matches the whole `path` (the one matcher of rules, plans, freezing and dtypes).
// `*` stands for any characters but dots, and `**` for any characters. A component `**` with its dot may also
// stand for nothing, so that "**.bias" matches "bias" and "model.norm.bias".
bool path_matches(std::string_view pattern, std::string_view path);

// --- storage on one device ---------------------------------------------------------------------------------

// Writes the initial values of `box` of the parameter into `out`, row-major, in out's dtype. The random key
// is philox_key(seed, full_name). An element's value depends on its index in the whole tensor, so that it is
// the same however the tensor is split.
void initialize_box(Ops& ops, Stream& stream, const Parameter& parameter, uint64_t seed, const Box& box,
                    const Tensor& out);

// Allocates every parameter of the tree whole (value == shard, grad == shard_grad), initialises it, and
// assigns full names. For a model that is not sharded; the parallel layer materializes sharded models.
void materialize(Module& root, Ops& ops, uint64_t seed);

}  // namespace gangway

#include "parallel/movement/movement.h"

#include <cstring>

#include "gang/agreement.h"
#include "parallel/collective_call.h"
#include "parallel/movement/algorithm.h"

namespace gangway {
namespace movement {
namespace {

struct Kind {
  const char* name;
  std::unique_ptr<Algorithm> (*make)(Request request);
};

Kind kind_of(Movement movement) noexcept {
  switch (movement) {
    case Movement::all_gather: return {"all_gather", make_along};
    case Movement::reduce_scatter: return {"reduce_scatter", make_along};
    case Movement::all_sum_reduce: return {"all_sum_reduce", make_along};
    case Movement::broadcast: return {"broadcast", make_roots};
    case Movement::sum_reduce: return {"sum_reduce", make_roots};
    case Movement::repartition: return {"repartition", make_repartition};
  }
  return {"unknown", nullptr};
}

// Returns the text of the arguments that must be equal on all ranks.
std::string arguments_of(const Request& request) {
  const auto list = [](const std::optional<std::vector<int>>& dims) {
    if (!dims) return std::string("none");
    std::string words = "[";
    for (const int d : *dims) words += " " + std::to_string(d);
    return words + " ]";
  };
  const MovementOptions& options = request.options;
  std::string words =
      text(name(request.kind), " axes ", list(options.axes), " axes_keep ", list(options.axes_keep));
  // A target is the same partition on all ranks, so they compare it here. A movement without a target may be
  // over a sub-topology, which differs between ranks; the members of its gang compare it.
  if (request.target)
    words += text(" from ", request.source.text(), options.transpose_source ? " transposed" : "", " to ",
                  request.target->text(), options.transpose_target ? " transposed" : "");
  return words;
}

std::string pack(const Tensor& x) {
  const auto dtype = static_cast<uint32_t>(x.dtype());
  std::string bytes(reinterpret_cast<const char*>(&dtype), sizeof dtype);
  const std::span<const int64_t> dims = x.shape().dims();
  return bytes.append(reinterpret_cast<const char*>(dims.data()), dims.size_bytes());
}

Spec unpack(const std::string& bytes) {
  uint32_t dtype;
  std::memcpy(&dtype, bytes.data(), sizeof dtype);
  std::vector<int64_t> dims((bytes.size() - sizeof dtype) / sizeof(int64_t));
  std::memcpy(dims.data(), bytes.data() + sizeof dtype, dims.size() * sizeof(int64_t));
  return {static_cast<DType>(dtype), Shape(dims)};
}

Specs gather_specs(Gang& gang, const Tensor& x) {
  Specs all;
  for (const std::string& bytes : gang.agreement().all_gather_bytes(Channel::control, pack(x)))
    all.push_back(unpack(bytes));
  return all;
}

class MovementModule final : public Module {
 public:
  explicit MovementModule(std::unique_ptr<const Algorithm> algorithm)
      : algorithm_(std::move(algorithm)), gangs_{request().source.base()} {
    for (const Group& group : algorithm_->groups()) gangs_.push_back(group.gang);
  }

  const char* kind() const override { return name(request().kind); }

  Values forward(Context& ctx, std::span<const Tensor> inputs, Frame* frame) override {
    const Tensor& x = inputs[0];
    const CollectiveCall call(gangs_, kind());
    call.check([&] { check_input(x); });
    const std::vector<Specs> specs = call.run([&] { return specs_of_groups(x); });
    auto plan = std::make_unique<CallPlan>();
    call.check([&] { *plan = plan_call(x, specs); });
    return call.run([&] {
      const Tensor y = make_output(ctx, frame, plan->dtype, plan->after);
      run(ctx, plan->dtype, plan->forward, x, y);
      if (frame != nullptr) {
        const auto forget = [](void* state, void*) { delete static_cast<CallPlan*>(state); };
        frame->user_states().set(*this, {plan.release(), forget, nullptr});
      }
      return Values{y};
    });
  }

  Values backward(Context& ctx, std::span<const Tensor> dy, Frame& frame) override {
    const auto* const plan = static_cast<const CallPlan*>(frame.user_states().get(*this));
    const CollectiveCall call(gangs_, kind());
    call.check([&] { check_gradient(plan, dy[0]); }, dy[0] ? "the gradient" : "an absent gradient");
    if (!dy[0]) return {Tensor()};
    return call.run([&] {
      const Tensor dx = frame.allocate_gradient(plan->dtype, plan->before);
      run(ctx, plan->dtype, plan->backward, dy[0], dx);
      if (const double scale = request().options.backward_scale; scale != 1 && dx.count() != 0)
        ctx.ops.scale(dx, scale, ctx.stream);
      return Values{dx};
    });
  }

 private:
  const Request& request() const { return algorithm_->request(); }

  void check_input(const Tensor& x) const {
    const Partition& source = request().source;
    if (source.active() || x.count() == 0) return;
    request().refuse("rank ", source.base()->rank(), " is no worker of the partition (", source.text(),
                     ") and must pass a tensor of no elements, not ", x.text());
  }

  void check_gradient(const CallPlan* plan, const Tensor& dy) const {
    if (plan == nullptr)
      fail(Code::invalid_state, kind(), ": no forward has run in this frame; forward comes first");
    if (!dy || (dy.shape() == plan->after && (dy.count() == 0 || dy.dtype() == plan->dtype))) return;
    request().refuse("the gradient is ", dy.text(), ", the output was ",
                     Spec{plan->dtype, plan->after}.text());
  }

  // Returns the inputs of all members, for each group of this rank.
  std::vector<Specs> specs_of_groups(const Tensor& x) const {
    std::vector<Specs> specs;
    for (const Group& group : algorithm_->groups()) specs.push_back(gather_specs(*group.gang, x));
    return specs;
  }

  CallPlan plan_call(const Tensor& x, const std::vector<Specs>& specs) const {
    if (specs.empty()) return {x.dtype(), x.shape(), algorithm_->shape_of_nothing(x), {}, {}};
    return algorithm_->plan(x, specs);
  }

  // Returns the input of a rank that has none of its own: an empty tensor, or zeros for a sum.
  static Tensor stand_in(Context& ctx, DType dtype, const Shape& shape) {
    const Tensor zeros = ctx.temporaries.allocate(dtype, shape);
    if (zeros.count() != 0) ctx.stream.device().zero(zeros.raw(), zeros.bytes(), ctx.stream);
    return zeros;
  }

  void run(Context& ctx, DType dtype, const std::vector<GroupCall>& calls, const Tensor& x,
           const Tensor& y) const {
    const std::vector<Group>& groups = algorithm_->groups();
    const StackScope scope(ctx.temporaries);
    std::vector<Redistribution::Started> started;
    started.reserve(calls.size());
    for (const GroupCall& call : calls) {
      const Tensor in = call.has_input ? x : stand_in(ctx, dtype, call.plan->before);
      const Tensor out = call.wants_output ? y : ctx.temporaries.allocate(dtype, call.plan->after);
      started.push_back(groups[call.group].run.start(ctx, call.plan, in, out));
    }
    for (size_t i = 0; i < calls.size(); ++i) {
      const Tensor result = groups[calls[i].group].run.finish(ctx, started[i]);
      if (calls[i].wants_output && result.count() != 0 && calls[i].plan->moves.empty())
        ctx.ops.cast(result, y, ctx.stream);
    }
  }

  const std::unique_ptr<const Algorithm> algorithm_;
  std::vector<GangPtr> gangs_;  // the base gang and the gangs of the groups
};

ModulePtr make_module(Request request) {
  const GangPtr base = request.source.base();
  const std::string arguments = arguments_of(request);
  std::unique_ptr<Algorithm> algorithm = kind_of(request.kind).make(std::move(request));
  base->agreement().agree_on([&] { algorithm->check(); }, arguments);
  algorithm->make_groups();
  return std::make_shared<MovementModule>(std::move(algorithm));
}

}  // namespace
}  // namespace movement

const char* name(Movement movement) noexcept { return movement::kind_of(movement).name; }

ModulePtr make_movement(Movement movement, const Partition& source, const Partition* target,
                        const MovementOptions& options) {
  movement::Request request{movement, source, std::nullopt, options};
  if (target != nullptr) request.target = *target;
  return movement::make_module(std::move(request));
}

}  // namespace gangway

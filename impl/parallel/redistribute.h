// Redistribution of values between layouts. The module Redistribute changes the layout of a value in forward,
// and that of its gradient the other way in backward (redistribution_plan.h has the table). Tensor and
// sequence parallelism consist of such modules at the right places.
//
// Each direction has two halves. start_... launches the first collective. finish makes the stream wait for it
// and does the rest. Compute between the two overlaps the collective; backward runs pending weight tasks
// there. The host never waits, because works are ordered on the context's stream.
//
// Thread rule: one thread at a time; collective over the gangs of the axes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gang/gang.h"
#include "nn/module.h"
#include "parallel/redistribution_plan.h"

namespace gangway {

// The gangs along the axes of a grid, slowest first.
struct GridGangs {
  struct Axis {
    std::string name;
    GangPtr gang;
  };
  std::vector<Axis> axes;
  // The gang of all ranks of the grid, row-major. If it is null, redistributions that need it are refused.
  GangPtr whole;
};

// Runs the moves of a plan on a tensor. The input, the output and the temporaries allocated since start must
// stay valid until finish, so the caller opens a StackScope on ctx.temporaries around both.
class Redistribution {
 public:
  // A redistribution that was started and must be finished. If it is destroyed while its collective is in
  // flight, the gang breaks, because the memory of the collective may be reused.
  class Started {
   public:
    Started() = default;
    Started(Started&&) = default;
    Started& operator=(Started&&) = delete;
    ~Started();
    bool travels() const { return work_ != nullptr; }

   private:
    friend class Redistribution;
    std::shared_ptr<const RedistributionPlan> plan_;
    size_t next_ = 0;  // index of the next move
    Tensor value_;     // input of that move
    Tensor output_;    // output of the last move
    // The collective in flight receives into landing_. finish unpacks landing_ into target_, unless both are
    // the same tensor.
    Tensor landing_, target_;
    GangPtr gang_;
    WorkPtr work_;
  };

  Redistribution(GridGangs gangs, Channel channel) : gangs_(std::move(gangs)), channel_(channel) {}

  RankGrid grid() const;
  const GangPtr& gang(int axis) const;
  // `output` has the shape plan->after. A plan without moves does not write it and returns `input` itself.
  Started start(Context& ctx, std::shared_ptr<const RedistributionPlan> plan, const Tensor& input,
                const Tensor& output) const;
  Tensor finish(Context& ctx, Started& started) const;

 private:
  // Runs local moves up to the next collective or the end.
  void advance(Context& ctx, Started& started) const;
  void launch(Context& ctx, const Move& move, Started& started) const;

  GridGangs gangs_;
  Channel channel_;
};

class Redistribute final : public Module {
 public:
  // What the frame keeps of a gathered value. again: only the input, which backward gathers again (for
  // example between a norm with sequence parallelism and the products that follow). kept: the gathered value,
  // except under Recompute::selective, which acts as `again`.
  enum class Gathered : uint8_t { kept, again };

  // Throws the errors of check_redistribution. INVALID_ARGUMENT: a gang is null. A negative dim counts from
  // the end.
  Redistribute(Layout from, Layout to, GridGangs gangs, Channel channel, Gathered gathered = Gathered::kept);

  const char* kind() const override { return "Redistribute"; }
  Specs check_forward(Context& ctx, std::span<const Spec> inputs) override;
  Values forward(Context& ctx, std::span<const Tensor> inputs, Frame* frame) override;
  Values backward(Context& ctx, std::span<const Tensor> dy, Frame& frame) override;
  // Gathers a value again that the frame did not keep.
  Tensor recompute(Context& ctx, Frame& frame, int index) override;

  // The plan for a tensor of this local shape, and the plan for a gradient of this local shape. The gradient
  // has the shape of the output of forward.
  using PlanPtr = std::shared_ptr<const RedistributionPlan>;
  PlanPtr forward_plan(const Shape& local) { return plan(kForward, local); }
  PlanPtr backward_plan(const Shape& local) { return plan(kBackward, local); }
  std::string text() const { return describe(from_) + " -> " + describe(to_); }

  // The two halves, for a layer that computes between them. `output` has the shape plan->after; a plan
  // without moves returns the input itself. The overloads with a frame allocate the output there.
  using Started = Redistribution::Started;
  Started start_forward(Context& ctx, const Tensor& x, const Tensor& output);
  Started start_backward(Context& ctx, const Tensor& dy, const Tensor& output);
  Started start_forward(Context& ctx, const Tensor& x, Frame* frame);
  // Allocates the output of forward, for a caller that fills it.
  Tensor forward_output(Context& ctx, const Tensor& x, Frame* frame) {
    return output_of(ctx, x, *forward_plan(x.shape()), frame);
  }
  Started start_backward(Context& ctx, const Tensor& dy, Frame& frame);
  Tensor finish(Context& ctx, Started& started) const { return run_.finish(ctx, started); }

 private:
  enum Direction { kForward, kBackward };
  PlanPtr plan(Direction direction, const Shape& local);
  PlanPtr planned_for_caller(const Shape& local);  // says what a refused shape means to a caller
  Tensor output_of(Context& ctx, const Tensor& x, const RedistributionPlan& plan, Frame* frame);

  const Layout from_, to_;
  const Redistribution run_;
  const Gathered gathered_;
  PlanPtr plans_[2];  // the last plan of each direction, because shapes seldom change
};

// A redistribution over one axis, which `from` and `to` name.
std::shared_ptr<Redistribute> make_redistribute(
    const Placement& from, const Placement& to, GangPtr gang, Channel channel,
    Redistribute::Gathered gathered = Redistribute::Gathered::kept);

}  // namespace gangway

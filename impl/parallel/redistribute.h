// What stands between two layouts of a value: a module whose forward redistributes it and whose backward redistributes
// its gradient the other way (redistribution_plan.h has the table). Tensor and sequence parallelism are which of these
// stand where.
//
// Each direction has two halves. start_... launches the first collective, finish orders the stream behind it and does
// what is left; the compute in between runs while it travels. backward drains pending weight tasks there. The host
// never waits: works are ordered on the context's stream.
//
// Thread rule: that of its module.
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
  GangPtr
      whole;  // of all their ranks, row-major; null: pieces that only all of them can exchange are refused
};

// Runs the moves of a plan on a tensor. Between start and finish the input, the output and the temporaries taken since
// start must stay; the caller opens a StackScope on ctx.temporaries around both.
class Redistribution {
 public:
  // A started one must be finished: if it is dropped while a collective travels, that gang breaks, because its memory
  // may be used again.
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
    size_t next_ = 0;  // move
    Tensor value_;     // before that move
    Tensor output_;    // of the last one
    // Of the collective that travels: where it lands, the tensor that it makes, its gang.
    Tensor landing_, target_;
    GangPtr gang_;
    WorkPtr work_;
  };

  Redistribution(GridGangs gangs, Channel channel) : gangs_(std::move(gangs)), channel_(channel) {}

  RankGrid grid() const;
  const GangPtr& gang(int axis) const;
  // `output` has the shape plan->after; without moves it is not written, and the result is `input` itself.
  Started start(Context& ctx, std::shared_ptr<const RedistributionPlan> plan, const Tensor& input,
                const Tensor& output) const;
  Tensor finish(Context& ctx, Started& started) const;

 private:
  void advance(Context& ctx, Started& started) const;  // to the next collective, or to the end
  void launch(Context& ctx, const Move& move, Started& started) const;

  GridGangs gangs_;
  Channel channel_;
};

class Redistribute final : public Module {
 public:
  // What becomes of a value that is gathered for a frame. again: it is not kept, but gathered again in backward (a
  // norm on parts of the sequence, and the products behind it); kept: that is so under Recompute::selective only.
  enum class Gathered : uint8_t { kept, again };

  // Throws what check_redistribution refuses. INVALID_ARGUMENT: a null gang. A dim below 0 is counted from the end.
  Redistribute(Layout from, Layout to, GridGangs gangs, Channel channel, Gathered gathered = Gathered::kept);

  const char* kind() const override { return "Redistribute"; }
  Specs check_forward(Context& ctx, std::span<const Spec> inputs) override;
  Values forward(Context& ctx, std::span<const Tensor> inputs, Frame* frame) override;
  Values backward(Context& ctx, std::span<const Tensor> dy, Frame& frame) override;
  // What was gathered is not kept under Recompute::selective; it is gathered again.
  Tensor recompute(Context& ctx, Frame& frame, int index) override;

  // Of a tensor of this shape on this rank, and of its gradient, which has the shape that forward gave.
  using PlanPtr = std::shared_ptr<const RedistributionPlan>;
  PlanPtr forward_plan(const Shape& local) { return plan(kForward, local); }
  PlanPtr backward_plan(const Shape& local) { return plan(kBackward, local); }
  std::string text() const { return describe(from_) + " -> " + describe(to_); }

  // The halves, for a layer that computes between them. `output`, if given, has the shape that the plan says; a plan without moves gives the input itself.
  using Started = Redistribution::Started;
  Started start_forward(Context& ctx, const Tensor& x, const Tensor& output);
  Started start_backward(Context& ctx, const Tensor& dy, const Tensor& output);
  Started start_forward(Context& ctx, const Tensor& x, Frame* frame);
  // The memory that forward gives its result, for a caller that fills it.
  Tensor forward_output(Context& ctx, const Tensor& x, Frame* frame) {
    return output_of(ctx, x, *forward_plan(x.shape()), frame);
  }
  Started start_backward(Context& ctx, const Tensor& dy, Frame& frame);
  Tensor finish(Context& ctx, Started& started) const { return run_.finish(ctx, started); }

 private:
  enum Direction { kForward, kBackward };
  PlanPtr plan(Direction direction, const Shape& local);
  Tensor output_of(Context& ctx, const Tensor& x, const RedistributionPlan& plan, Frame* frame);

  const Layout from_, to_;
  const Redistribution run_;
  const Gathered gathered_;
  PlanPtr plans_[2];  // the last one of each direction
};

// Over one axis; it is the gang's name for the placements.
std::shared_ptr<Redistribute> make_redistribute(
    const Placement& from, const Placement& to, GangPtr gang, Channel channel,
    Redistribute::Gathered gathered = Redistribute::Gathered::kept);

}  // namespace gangway

// A net whose backward can be paused in the middle of a parameter group, and training steps of it. The tests
// prove that no peer writes its rows while a paused rank still reads them: the values before and after the
// pause are compared, and so are all results with those of a run without pauses.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "base/philox.h"
#include "parallel/model/clip.h"
#include "train/train_testing.h"

namespace gangway::test {

inline std::vector<double> copy_of(const Tensor& t) {
  return {t.data<double>(), t.data<double>() + t.count()};
}

// Counts the points that each rank has passed, in memory that all ranks see.
class Progress {
 public:
  explicit Progress(Gang& root)
      : region_(root.allocate_shared(static_cast<size_t>(root.size()) * sizeof(Counter))),
        rank_(root.rank()),
        size_(root.size()) {
    new (&of(rank_)) Counter(0);
    root.barrier(Channel::user);
  }
  void pass() { of(rank_).fetch_add(1); }
  // Waits until all peers have passed `ahead` points more than this rank. Returns whether they have.
  bool wait_for_peers(int ahead) {
    const Deadline deadline = Deadline::after_ms(20'000);
    for (int r = 0; r < size_; ++r)
      while (of(r) < of(rank_) + (r == rank_ ? 0 : ahead)) {
        if (deadline.passed()) return false;
        std::this_thread::sleep_for(std::chrono::microseconds(200));
      }
    return true;
  }

 private:
  using Counter = std::atomic<int>;
  Counter& of(int r) { return static_cast<Counter*>(region_.writable->data())[r]; }

  SharedRegion region_;
  const int rank_, size_;
};

// A module that returns its inputs, and that can pause its rank.
class PausedModule final : public Module {
 public:
  explicit PausedModule(Gang& root) : progress(root) {}
  bool forward_now = false, backward_now = false;
  // A rank passes a point at the end of each forward and backward of the whole net, and where an update
  // begins. A paused rank waits until its peers have passed the `ahead`-th point after its own.
  Progress progress;
  int ahead = 1;
  std::vector<ParameterPtr> watched;
  int pauses_done = 0;

  const char* kind() const override { return "Paused"; }
  Values forward(Context&, std::span<const Tensor> inputs, Frame*) override {
    if (forward_now) pause();
    return {inputs[0]};
  }
  Values backward(Context&, std::span<const Tensor> dy, Frame&) override {
    if (backward_now) pause();
    return {dy[0]};
  }

 private:
  std::vector<double> values() const {
    std::vector<double> all;
    for (const ParameterPtr& p : watched)
      for (const double x : copy_of(p->value)) all.push_back(x);
    return all;
  }
  void pause() {
    const std::vector<double> before = values();
    EXPECT_TRUE(progress.wait_for_peers(ahead)) << "peers wait for this rank before they could write";
    // No event tells when the peers would write, so this gives them time to do it.
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_EQ(values(), before) << "a peer wrote what this rank still reads";
    ++pauses_done;
  }
};

// The loss is the sum of 1/2 |out(body(x)) - y|^2 over the rows, its weight is their number, and body is
// linear, pause, linear.
class PausedNet final : public Module {
 public:
  explicit PausedNet(Gang& root) : pause(std::make_shared<PausedModule>(root)) {
    add_child("body", make_sequential({make_linear(6, 8, true, 0.5), pause, make_linear(8, 7, true, 0.5)}));
    add_child("out", make_linear(7, 4, true, 0.5));
  }
  const std::shared_ptr<PausedModule> pause;
  std::vector<double> input_gradient;  // of the last backward

  const char* kind() const override { return "PausedNet"; }
  size_t output_count(size_t) const override { return 2; }
  size_t gradient_count() const override { return 2; }

  Values forward(Context& ctx, std::span<const Tensor> inputs, Frame* frame) override {
    const Tensor y = child(1).forward_one(ctx, child(0).forward_one(ctx, inputs[0], frame), frame);
    const Tensor dy = make_output(ctx, frame, DType::f64, y.shape());
    const Values loss = {make_output(ctx, frame, DType::f64, Shape{1}),
                         make_output(ctx, frame, DType::f64, Shape{1})};
    double sum = 0;
    for (int64_t i = 0; i < y.count(); ++i) {
      const double error = y.data<double>()[i] - inputs[1].data<double>()[i];
      sum += 0.5 * error * error;
      dy.data<double>()[i] = error * ctx.loss_scale;
    }
    *loss[0].data<double>() = sum;
    *loss[1].data<double>() = static_cast<double>(y.dim(0));
    if (frame != nullptr) frame->slots().save(*this, 0, dy);
    pause->progress.pass();
    return loss;
  }
  Values backward(Context& ctx, std::span<const Tensor>, Frame& frame) override {
    const Tensor dh = child(1).backward_one(ctx, frame.slots().load(ctx, *this, 0), frame);
    const Tensor dx = child(0).backward_one(ctx, dh, frame);
    input_gradient = copy_of(dx);
    pause->progress.pass();
    return {dx, Tensor()};
  }
};

enum class Freeze { nothing, first_layer, whole_group };
// own_update: begin_update, the optimizer and end_update, after an evaluation in which the slow rank is
// paused once more. No collective separates that evaluation from the peers' writes, so only the version gate
// orders them.
enum class UpdateBy { train_step, optimizer_step, own_update };

struct PausedCase {
  Strategy strategy = Strategy::full_shard;
  Freeze freeze = Freeze::nothing;
  bool clips = false;
  bool evaluates = false;  // between steps, while another rank is paused in forward
  UpdateBy update = UpdateBy::train_step;
  std::string describe() const {
    return text("strategy ", static_cast<int>(strategy), ", freeze ", static_cast<int>(freeze), ", clips ",
                clips, ", evaluates ", evaluates, ", update by ", static_cast<int>(update));
  }
};

inline std::vector<PausedCase> paused_cases() {
  std::vector<PausedCase> cases;
  for (const Strategy strategy : {Strategy::full_shard, Strategy::shard_grad_op})
    for (const Freeze freeze : {Freeze::nothing, Freeze::first_layer, Freeze::whole_group})
      for (const bool clips : {false, true}) {
        cases.push_back({strategy, freeze, clips, false, UpdateBy::train_step});
        cases.push_back(
            {strategy, freeze, clips, true, clips ? UpdateBy::optimizer_step : UpdateBy::train_step});
        cases.push_back({strategy, freeze, clips, false, UpdateBy::own_update});
      }
  return cases;
}

inline Batch paused_batch(Model& model, int rank, int step) {
  const int64_t rows = 2 + rank;
  const auto random = [&](const char* what, int64_t width) {
    std::vector<double> values(static_cast<size_t>(rows * width));
    uint64_t i = 0;
    for (double& x : values) x = philox_normal(philox_key(11, text(what, " ", rank, " ", step)), i++);
    return tensor_of(model, DType::f64, Shape{rows, width}, values.data());
  };
  Batch batch;
  batch.inputs = {random("x", 6)};
  batch.targets = {random("y", 4)};
  batch.weight = rows;
  return batch;
}

// The loop of a caller: forward and backward with a gradient of 1, then the optimizer.
inline StepResult manual_step(Model& model, Optimizer& optimizer, const Batch& batch, StepOptions options,
                              int64_t weight, UpdateBy update, PausedModule& pause) {
  Stream& stream = model.device().stream();
  Context ctx = model.run().context(stream);
  const Tensor values[] = {batch.inputs[0], batch.targets[0]};
  model.run().forward(ctx, values, &model.frame(0));
  model.run().backward(ctx, {}, model.frame(0));
  model.frame(0).reset();
  options.scale = 1 / static_cast<double>(weight);
  if (update == UpdateBy::optimizer_step) return optimizer_step(model, optimizer, options, stream);
  StepResult result;
  model.run().finish_gradients(stream);
  double clip = 1;
  if (options.max_grad_norm > 0) {
    result.grad_norm = model.run().gradient_norm(2, stream) * options.scale;
    clip = clip_factor(result.grad_norm, options.max_grad_norm);
  }
  pause.forward_now = pause.backward_now;
  pause.ahead = 2;  // the peers come up to the beginning of their update
  result.loss = *model.run().forward(ctx, values, nullptr)[0].data<double>();
  pause.forward_now = false;
  pause.ahead = 1;
  model.temporaries().reset();
  pause.progress.pass();
  model.run().begin_update(stream);
  optimizer.step(options.scale, clip, stream);
  model.run().end_update(stream, true);
  return result;
}

// Trains as many steps as there are ranks, with each rank paused in one of them. Returns losses, norms, input
// gradients and parameters.
inline std::vector<double> paused_steps(Gang& root, const PausedCase& c, bool pauses) {
  const auto net = std::make_shared<PausedNet>(root);
  for (const NamedParameter& p : named_parameters(*net)) {
    if (c.freeze == Freeze::whole_group && p.name.starts_with("body.")) p.parameter->trainable = false;
    if (c.freeze == Freeze::first_layer && p.name.starts_with("body.0.")) p.parameter->trainable = false;
    if (p.name.starts_with("body.")) net->pause->watched.push_back(p.parameter);
  }
  const auto model = make_model(net, make_gangs(root), parallel(c.strategy));
  OptimizerOptions adamw;
  adamw.lr = 0.05;
  const auto optimizer = make_optimizer("adamw", model->inspect().parameters(), adamw, model->ops());
  StepOptions options;
  options.max_grad_norm = c.clips ? 0.5 : 0;
  std::vector<double> trace;
  int64_t weight = 0;
  for (int r = 0; r < root.size(); ++r) weight += 2 + r;
  for (int step = 0; step < root.size(); ++step) {
    net->pause->backward_now = pauses && root.rank() == step;
    const Batch batch = paused_batch(*model, root.rank(), step);
    const StepResult result =
        c.update == UpdateBy::train_step
            ? train_step(*model, optimizer.get(), batch, options, model->device().stream())
            : manual_step(*model, *optimizer, batch, options, weight, c.update, *net->pause);
    EXPECT_EQ(result.skipped, Skip::none);
    EXPECT_EQ(result.grad_norm >= 0, c.clips);
    trace.insert(trace.end(), {result.loss, result.grad_norm});
    trace.insert(trace.end(), net->input_gradient.begin(), net->input_gradient.end());
    if (!c.evaluates) continue;
    net->pause->forward_now = pauses && root.rank() == (step + 1) % root.size();
    trace.push_back(eval_step(*model, batch, options, model->device().stream()).loss);
    net->pause->forward_now = false;
  }
  EXPECT_EQ(net->pause->pauses_done, pauses ? 1 + c.evaluates + (c.update == UpdateBy::own_update) : 0);
  for (const NamedParameter& p : model->inspect().parameters())
    for (const double x : gathered(*model, *p.parameter)) trace.push_back(x);
  return trace;
}

inline void expect_paused_ranks_read_old_bits(Gang& root, const PausedCase& c) {
  const std::vector<double> want = paused_steps(root, c, false);
  EXPECT_EQ(paused_steps(root, c, true), want) << c.describe();
}

}  // namespace gangway::test

#include "ops/cpu/operations.h"

#include <cmath>

#include "ops/cpu/kernels/optimizer_kernels.h"

namespace gangway::cpu {
namespace {

constexpr size_t kGrain = 8192;

const OptimizerKernels& kernels(Isa isa) {
  return choose(isa, portable::optimizer_kernels, avx2::optimizer_kernels, avx512::optimizer_kernels);
}

Stored stored(const Tensor& t) { return t ? Stored{t.raw(), t.dtype()} : Stored{}; }

template <typename Step>
void run(Context& context, const Tensor& p, const Step& step, void (*kernel)(const Step&, int64_t, int64_t)) {
  context.pool.run(static_cast<size_t>(p.count()), kGrain, [&](int, size_t first, size_t last) {
    kernel(step, static_cast<int64_t>(first), static_cast<int64_t>(last));
  });
}

}  // namespace

void adamw(Context& context, const AdamWArgs& args) {
  const OptimizerControl& control = args.control;
  const double lr = control.lr * args.lr_scale;
  const double step_number = static_cast<double>(control.step);
  AdamWStep step;
  step.p = stored(args.p);
  step.g = stored(args.g);
  step.m = stored(args.m);
  step.v = stored(args.v);
  step.copy = stored(args.copy);
  step.g_factor = control.scale * control.clip;
  step.beta1 = args.beta1;
  step.beta2 = args.beta2;
  step.rate = lr / (1 - std::pow(args.beta1, step_number));
  step.v_factor = 1 / std::sqrt(1 - std::pow(args.beta2, step_number));
  step.eps = args.eps;
  step.keep = 1 - lr * args.weight_decay;
  step.rounding = args.rounding;
  run(context, args.p, step, kernels(context.isa).adamw);
}

void lion(Context& context, const LionArgs& args) {
  const OptimizerControl& control = args.control;
  const double lr = control.lr * args.lr_scale;
  LionStep step;
  step.p = stored(args.p);
  step.g = stored(args.g);
  step.m = stored(args.m);
  step.copy = stored(args.copy);
  step.g_factor = control.scale * control.clip;
  step.beta1 = args.beta1;
  step.beta2 = args.beta2;
  step.rate = lr;
  step.keep = 1 - lr * args.weight_decay;
  step.rounding = args.rounding;
  run(context, args.p, step, kernels(context.isa).lion);
}

void sgd(Context& context, const SgdArgs& args) {
  const OptimizerControl& control = args.control;
  SgdStep step;
  step.p = stored(args.p);
  step.g = stored(args.g);
  if (args.momentum != 0) step.m = stored(args.m);
  step.copy = stored(args.copy);
  step.g_factor = control.scale * control.clip;
  step.weight_decay = args.weight_decay;
  step.m_factor = control.step <= 1 ? 0 : args.momentum;
  step.momentum = args.momentum;
  step.rate = control.lr * args.lr_scale;
  step.nesterov = args.nesterov;
  run(context, args.p, step, kernels(context.isa).sgd);
}

}  // namespace gangway::cpu

#include "ops/cpu/kernels/adamw8bit_kernels.h"

#include <cmath>

#include "ops/codes.h"
#include "ops/cpu/operations.h"

namespace gangway::cpu {
namespace {

Stored stored(const Tensor& t) { return t ? Stored{t.raw(), t.dtype()} : Stored{}; }

CodedAverage average(const Tensor& codes, const Tensor& scales, const CodeTable& table) {
  return {codes.data<uint8_t>(), scales.data<float>(), table.values.data(), table.limits.data()};
}

}  // namespace

void adamw8bit(Context& context, const AdamW8bitArgs& args) {
  constexpr size_t kGrain = 64;  // blocks
  const OptimizerControl& control = args.control;
  const double lr = control.lr * args.lr_scale, step_number = static_cast<double>(control.step);
  AdamW8bitStep step;
  step.p = stored(args.p);
  step.g = stored(args.g);
  step.copy = stored(args.copy);
  step.m = average(args.m, args.m_scale, signed_codes());
  step.v = average(args.v, args.v_scale, unsigned_codes());
  step.columns = args.columns;
  step.blocks = code_blocks(args.columns);
  step.g_factor = control.scale * control.clip;
  step.beta1 = args.beta1;
  step.beta2 = args.beta2;
  step.rate = lr / (1 - std::pow(args.beta1, step_number));
  step.v_factor = 1 / std::sqrt(1 - std::pow(args.beta2, step_number));
  step.eps = args.eps;
  step.keep = 1 - lr * args.weight_decay;
  step.rounding = args.rounding;
  const AdamW8bitKernels& k =
      choose(context.isa, portable::adamw8bit_kernels, avx2::adamw8bit_kernels, avx512::adamw8bit_kernels);
  context.pool.run(static_cast<size_t>(args.m_scale.count()), kGrain, [&](int, size_t first, size_t last) {
    k.step(step, static_cast<int64_t>(first), static_cast<int64_t>(last));
  });
}

}  // namespace gangway::cpu

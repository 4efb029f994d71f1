#include "ops/cpu/kernels/activation_kernels.h"

#include "ops/cpu/operations.h"

namespace gangway::cpu {
namespace {

static_assert(static_cast<int>(Activation::tanh) + 1 == kActivations);

const ActivationKernels& kernels(Isa isa) {
  return choose(isa, portable::activation_kernels, avx2::activation_kernels, avx512::activation_kernels);
}

void run(Context& context, const Tensor& x, const ActivationKernel& kernel, const ActivationElements& p) {
  constexpr size_t kGrainElements = 8192;
  context.pool.run(static_cast<size_t>(x.count()), kGrainElements, [&](int, size_t first, size_t last) {
    kernel[x.dtype()](p, static_cast<int64_t>(first), static_cast<int64_t>(last));
  });
}

}  // namespace

void activation(Context& context, const ActivationArgs& args) {
  run(context, args.x, kernels(context.isa).forward[args.activation],
      {args.x.raw(), nullptr, args.y.raw(), nullptr});
}

void activation_backward(Context& context, const ActivationBackwardArgs& args) {
  run(context, args.x, kernels(context.isa).backward[args.activation],
      {args.x.raw(), args.dy.raw(), raw_or_null(args.y), args.dx.raw()});
}

}  // namespace gangway::cpu

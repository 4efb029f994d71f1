#include "ops/cpu/operations.h"

#include <algorithm>

#include "ops/cpu/kernels/swiglu_kernels.h"

namespace gangway::cpu {
namespace {

const SwigluKernels& kernels(Isa isa) {
  return choose(isa, portable::swiglu_kernels, avx2::swiglu_kernels, avx512::swiglu_kernels);
}

SwigluRows rows(const Tensor& gate, const Tensor& up, const Tensor& y) {
  return SwigluRows{gate.raw(), up.raw(), gate.stride(0), up.stride(0), y ? y.raw() : nullptr, gate.dim(1)};
}

template <typename Kernel, typename P>
void run(Context& context, const Tensor& gate, Kernel kernel, const P& p) {
  constexpr size_t kGrainElements = 8192;
  const size_t grain = kGrainElements / std::max<size_t>(1, static_cast<size_t>(gate.dim(1)));
  context.pool.run(static_cast<size_t>(gate.dim(0)), std::max<size_t>(1, grain),
                   [&](int, size_t first, size_t last) {
                     kernel(p, static_cast<int64_t>(first), static_cast<int64_t>(last));
                   });
}

}  // namespace

void swiglu(Context& context, const SwigluArgs& args) {
  run(context, args.gate, kernels(context.isa).forward[args.activation][args.gate.dtype()],
      rows(args.gate, args.up, args.y));
}

void swiglu_backward(Context& context, const SwigluBackwardArgs& args) {
  const SwigluBackwardRows p{rows(args.gate, args.up, args.y),
                             args.dy.raw(),
                             args.dgate.raw(),
                             args.dup.raw(),
                             args.dgate.stride(0),
                             args.dup.stride(0)};
  run(context, args.gate, kernels(context.isa).backward[args.activation][args.gate.dtype()], p);
}

}  // namespace gangway::cpu

#include "ops/cpu/operations.h"

#include "ops/cpu/kernels/swiglu_kernels.h"

namespace gangway::cpu {
namespace {

const SwigluKernels& kernels(Isa isa) {
  return choose(isa, portable::swiglu_kernels, avx2::swiglu_kernels, avx512::swiglu_kernels);
}

SwigluRows rows(const Tensor& gate, const Tensor& up, const Tensor& y) {
  return SwigluRows{gate.raw(), up.raw(), gate.stride(0), up.stride(0), raw_or_null(y), gate.dim(1)};
}

template <typename Kernel, typename P>
void run(Context& context, const Tensor& gate, Kernel kernel, const P& p) {
  constexpr size_t kGrainElements = 8192;
  over_rows(context, gate.dim(0), gate.dim(1), kGrainElements,
            [&](int, int64_t first, int64_t last) { kernel(p, first, last); });
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

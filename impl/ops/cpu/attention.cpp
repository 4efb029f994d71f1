#include "ops/cpu/attention.h"

#include <cstring>

#include "ops/cpu/kernels/attention_kernels.h"

namespace gangway::cpu {
namespace {

const AttentionKernels& kernels(Isa isa) {
  return choose(isa, portable::attention_kernels, avx2::attention_kernels, avx512::attention_kernels);
}

HeadsView view(const Tensor& t, DType dtype) {
  return HeadsView{t.raw(), t.stride(0), t.stride(1), t.stride(2), t.dtype() != dtype};
}

template <typename Args>
AttentionShape shape_of(const Args& args) {
  return AttentionShape{args.q.dim(1), args.k.dim(1), args.q.dim(2), args.k.dim(2),
                        args.q.dim(3), args.scale,    args.causal,   args.q_offset - args.k_offset};
}

// Tasks of one call: batch * key/value heads, each whole on one thread, so that no sum depends on the
// threads.
template <typename Kernel, typename P>
void run(Context& context, Kernel kernel, const P& p, size_t scratch_bytes, int64_t batch) {
  context.pool.run(static_cast<size_t>(batch * p.shape.groups), 1,
                   [&](int thread, size_t first, size_t last) {
                     kernel(p, context.scratch.of<char>(thread, scratch_bytes), static_cast<int64_t>(first),
                            static_cast<int64_t>(last));
                   });
}

}  // namespace

void attention(Context& context, const AttentionArgs& args) {
  const DType dtype = args.q.dtype();
  const AttentionForward p{shape_of(args),      view(args.q, dtype),   view(args.k, dtype),
                           view(args.v, dtype), view(args.out, dtype), args.lse ? args.lse.raw() : nullptr};
  const AttentionKernels& table = kernels(context.isa);
  run(context, table.forward[dtype], p, table.forward_scratch[dtype](p.shape), args.q.dim(0));
}

void attention_backward(Context& context, const AttentionBackwardArgs& args) {
  const DType dtype = args.q.dtype();
  const AttentionBackward p{shape_of(args),       view(args.q, dtype),   view(args.k, dtype),
                            view(args.v, dtype),  view(args.out, dtype), view(args.dout, dtype),
                            view(args.dq, dtype), view(args.dk, dtype),  view(args.dv, dtype),
                            args.lse.raw(),       args.accumulate};
  const AttentionKernels& table = kernels(context.isa);
  run(context, table.backward[dtype], p, table.backward_scratch[dtype](p.shape), args.q.dim(0));
}

}  // namespace gangway::cpu

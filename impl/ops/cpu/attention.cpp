#include "ops/cpu/operations.h"

#include <vector>

#include "ops/cpu/kernels/attention_kernels.h"

namespace gangway::cpu {
namespace {

HeadsView view(const Tensor& t, DType dtype) {
  return HeadsView{t.raw(), t.stride(0), t.stride(1), t.stride(2), t.dtype() != dtype};
}

template <typename Args>
AttentionShape shape_of(const Args& args) {
  const bool ranges = static_cast<bool>(args.first_key);
  return AttentionShape{args.q.dim(1),
                        args.k.dim(1),
                        args.q.dim(2),
                        args.k.dim(2),
                        args.q.dim(3),
                        args.scale,
                        args.causal,
                        args.q_offset - args.k_offset,
                        args.cap,
                        ranges ? args.first_key.template data<int32_t>() : nullptr,
                        ranges ? args.end_key.template data<int32_t>() : nullptr,
                        ranges && args.first_key.dim(0) > 1 ? args.q.dim(1) : 0,
                        args.k_offset};
}

// Adds the gradients [B, H] of the rows of a batch to dsinks, in the order of the rows.
template <typename S>
void add_parts(const std::vector<double>& parts_BH, S* dsinks_H, size_t heads) {
  for (size_t h = 0; h < heads; ++h) {
    double sum = 0;
    for (size_t at = h; at < parts_BH.size(); at += heads) sum += parts_BH[at];
    dsinks_H[h] += static_cast<S>(sum);
  }
}

// Runs the tasks of one call: batch * key/value heads. Each task runs on one thread, so no sum depends on the
// number of threads.
template <typename Kernels, typename P>
void run(Context& context, const Kernels& kernels, DType dtype, const P& p, int64_t batch) {
  const size_t scratch_bytes = kernels.scratch[dtype](p.shape);
  context.pool.run(static_cast<size_t>(batch * p.shape.groups), 1,
                   [&](int thread, size_t first, size_t last) {
                     kernels.run[dtype](p, context.scratch.of<char>(thread, scratch_bytes),
                                        static_cast<int64_t>(first), static_cast<int64_t>(last));
                   });
}

}  // namespace

void attention(Context& context, const AttentionArgs& args) {
  const DType dtype = args.q.dtype();
  const AttentionForward p{shape_of(args),         view(args.q, dtype),   view(args.k, dtype),
                           view(args.v, dtype),    view(args.out, dtype), raw_or_null(args.lse),
                           raw_or_null(args.sinks)};
  run(context,
      choose(context.isa, portable::attention_kernels, avx2::attention_kernels, avx512::attention_kernels),
      dtype, p, args.q.dim(0));
}

void attention_merge(Context& context, const AttentionMergeArgs& args) {
  constexpr size_t kGrainElements = 16384;
  const DType dtype = args.part.dtype();
  const auto statistics = [](const Tensor& t) {
    return StatisticsView{t.raw(), t.stride(0), t.stride(1), t.stride(2)};
  };
  const AttentionMerge p{args.part.dim(1),         args.part.dim(2),       args.part.dim(3),
                         view(args.out, dtype),    view(args.part, dtype), statistics(args.lse),
                         statistics(args.part_lse)};
  const auto kernel = choose(context.isa, portable::attention_merge_kernels, avx2::attention_merge_kernels,
                             avx512::attention_merge_kernels)
                          .run[dtype];
  over_rows(context, args.part.dim(0) * args.part.dim(1), args.part.dim(2) * args.part.dim(3), kGrainElements,
            [&](int, int64_t first, int64_t last) { kernel(p, first, last); });
}

void attention_backward(Context& context, const AttentionBackwardArgs& args) {
  const DType dtype = args.q.dtype();
  const auto heads = static_cast<size_t>(args.q.dim(2));
  std::vector<double> dsinks(args.dsinks ? static_cast<size_t>(args.q.dim(0)) * heads : 0);
  const AttentionBackward p{shape_of(args),
                            view(args.q, dtype),
                            view(args.k, dtype),
                            view(args.v, dtype),
                            view(args.out, dtype),
                            view(args.dout, dtype),
                            view(args.dq, dtype),
                            view(args.dk, dtype),
                            view(args.dv, dtype),
                            args.lse.raw(),
                            args.accumulate,
                            raw_or_null(args.sinks),
                            args.dsinks ? dsinks.data() : nullptr};
  run(context,
      choose(context.isa, portable::attention_backward_kernels, avx2::attention_backward_kernels,
             avx512::attention_backward_kernels),
      dtype, p, args.q.dim(0));
  if (!args.dsinks) return;
  if (dtype == DType::f64) {
    add_parts(dsinks, args.dsinks.data<double>(), heads);
  } else {
    add_parts(dsinks, args.dsinks.data<float>(), heads);
  }
}

}  // namespace gangway::cpu

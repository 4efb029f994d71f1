#include "ops/cpu/operations.h"

#include <algorithm>
#include <vector>

#include "ops/cpu/kernels/layernorm_kernels.h"
#include "ops/cpu/kernels/norm_kernels.h"

namespace gangway::cpu {
namespace {

constexpr size_t kGrainElements = 16384;

const NormKernels& kernels(Isa isa) {
  return choose(isa, portable::norm_kernels, avx2::norm_kernels, avx512::norm_kernels);
}

const LayerNormKernels& layernorm_kernels(Isa isa) {
  return choose(isa, portable::layernorm_kernels, avx2::layernorm_kernels, avx512::layernorm_kernels);
}

// The sums of each thread for several gradients [D], as [gradients, D] in their dtype. They take no memory if
// no gradient is wanted.
class Partials {
 public:
  Partials(Context& context, std::vector<Tensor> gradients) : gradients_(std::move(gradients)) {
    for (const Tensor& g : gradients_)
      if (g) part_bytes_ = g.bytes();
    if (part_bytes_ == 0) return;
    for (int t = 0; t < context.pool.threads(); ++t) {
      threads_.push_back(context.scratch.of<char>(t, part_bytes_ * gradients_.size()));
      std::fill_n(threads_.back(), part_bytes_ * gradients_.size(), char{0});
    }
  }
  // Returns null if this gradient is not wanted.
  void* of(int thread, size_t gradient) const {
    if (!gradients_[gradient]) return nullptr;
    return threads_.empty() ? gradients_[gradient].raw()
                            : threads_[static_cast<size_t>(thread)] + gradient * part_bytes_;
  }
  // Adds the sums to the gradients, in the order of the threads.
  void add() const {
    for (size_t g = 0; g < gradients_.size(); ++g) {
      if (!gradients_[g]) continue;
      if (gradients_[g].dtype() == DType::f64) {
        add_to<double>(g);
      } else {
        add_to<float>(g);
      }
    }
  }

 private:
  template <typename S>
  void add_to(size_t gradient) const {
    S* const to_D = gradients_[gradient].data<S>();
    for (char* thread : threads_) {
      const S* part_D = reinterpret_cast<const S*>(thread + gradient * part_bytes_);
      for (int64_t d = 0; d < gradients_[gradient].count(); ++d) to_D[d] += part_D[d];
    }
  }

  std::vector<Tensor> gradients_;
  size_t part_bytes_ = 0;  // of one gradient
  std::vector<char*> threads_;
};

}  // namespace

void rmsnorm(Context& context, const RmsNormArgs& args) {
  const NormForward p{args.x.raw(),
                      raw_or_null(args.residual),
                      args.weight.raw(),
                      args.y.raw(),
                      args.residual ? args.sum.raw() : nullptr,
                      args.rstd.raw(),
                      args.x.dim(1),
                      args.eps,
                      args.offset,
                      raw_or_null(args.squares),
                      args.squares ? args.width : args.x.dim(1)};
  const auto kernel = kernels(context.isa).forward[args.x.dtype()];
  over_rows(context, args.x.dim(0), args.x.dim(1), kGrainElements,
            [&](int, int64_t first, int64_t last) { kernel(p, first, last); });
}

void rmsnorm_backward(Context& context, const RmsNormBackwardArgs& args) {
  const NormBackward p{args.dy.raw(),
                       args.x.raw(),
                       args.weight.raw(),
                       args.rstd.raw(),
                       raw_or_null(args.dsum),
                       raw_or_null(args.dx),
                       raw_or_null(args.y),
                       args.x.dim(1),
                       args.offset,
                       raw_or_null(args.dots),
                       args.dots ? args.width : args.x.dim(1)};
  const Partials partials(context, {args.dweight});
  const auto kernel = kernels(context.isa).backward[args.x.dtype()];
  over_rows(context, args.x.dim(0), args.x.dim(1), kGrainElements,
            [&](int thread, int64_t first, int64_t last) { kernel(p, partials.of(thread, 0), first, last); });
  partials.add();
}

void row_dot(Context& context, const RowDotArgs& args) {
  const RowDot p{args.x.raw(),   args.y.raw(),  raw_or_null(args.weight),
                 args.out.raw(), args.x.dim(1), args.offset};
  const auto kernel = kernels(context.isa).row_dot[args.x.dtype()];
  over_rows(context, args.x.dim(0), args.x.dim(1), kGrainElements,
            [&](int, int64_t first, int64_t last) { kernel(p, first, last); });
}

void layernorm(Context& context, const LayerNormArgs& args) {
  const LayerNormForward p{args.x.raw(),      raw_or_null(args.residual),
                           args.weight.raw(), args.bias.raw(),
                           args.y.raw(),      args.residual ? args.sum.raw() : nullptr,
                           args.mean.raw(),   args.rstd.raw(),
                           args.x.dim(1),     args.eps};
  const auto kernel = layernorm_kernels(context.isa).forward[args.x.dtype()];
  over_rows(context, args.x.dim(0), args.x.dim(1), kGrainElements,
            [&](int, int64_t first, int64_t last) { kernel(p, first, last); });
}

void layernorm_backward(Context& context, const LayerNormBackwardArgs& args) {
  const LayerNormBackward p{
      args.dy.raw(),   args.x.raw(),           args.weight.raw(),    raw_or_null(args.bias), args.mean.raw(),
      args.rstd.raw(), raw_or_null(args.dsum), raw_or_null(args.dx), raw_or_null(args.y),    args.x.dim(1)};
  const Partials partials(context, {args.dweight, args.dbias});
  const auto kernel = layernorm_kernels(context.isa).backward[args.x.dtype()];
  over_rows(context, args.x.dim(0), args.x.dim(1), kGrainElements,
            [&](int thread, int64_t first, int64_t last) {
              kernel(p, partials.of(thread, 0), partials.of(thread, 1), first, last);
            });
  partials.add();
}

}  // namespace gangway::cpu

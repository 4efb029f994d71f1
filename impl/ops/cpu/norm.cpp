#include "ops/cpu/operations.h"

#include <algorithm>
#include <vector>

#include "ops/cpu/kernels/norm_kernels.h"

namespace gangway::cpu {
namespace {

constexpr size_t kGrainElements = 16384;

const NormKernels& kernels(Isa isa) {
  return choose(isa, portable::norm_kernels, avx2::norm_kernels, avx512::norm_kernels);
}

size_t grain_rows(const Tensor& x) {
  return std::max<size_t>(1, kGrainElements / std::max<size_t>(1, static_cast<size_t>(x.dim(1))));
}

// Adds the threads' partial sums to dweight_D, in the order of the threads.
template <typename S>
void add_partials(const std::vector<void*>& partials, S* dweight_D, int64_t width) {
  for (void* partial : partials)
    for (int64_t d = 0; d < width; ++d) dweight_D[d] += static_cast<const S*>(partial)[d];
}

}  // namespace

void rmsnorm(Context& context, const RmsNormArgs& args) {
  const NormForward p{args.x.raw(),
                      args.residual ? args.residual.raw() : nullptr,
                      args.weight.raw(),
                      args.y.raw(),
                      args.residual ? args.sum.raw() : nullptr,
                      args.rstd.raw(),
                      args.x.dim(1),
                      args.eps};
  const auto kernel = kernels(context.isa).forward[args.x.dtype()];
  context.pool.run(static_cast<size_t>(args.x.dim(0)), grain_rows(args.x),
                   [&](int, size_t first, size_t last) {
                     kernel(p, static_cast<int64_t>(first), static_cast<int64_t>(last));
                   });
}

void rmsnorm_backward(Context& context, const RmsNormBackwardArgs& args) {
  const NormBackward p{args.dy.raw(),
                       args.x.raw(),
                       args.weight.raw(),
                       args.rstd.raw(),
                       args.dsum ? args.dsum.raw() : nullptr,
                       args.dx ? args.dx.raw() : nullptr,
                       args.y ? args.y.raw() : nullptr,
                       args.x.dim(1)};
  const int64_t width = args.x.dim(1);
  std::vector<void*> partials;
  if (args.dweight) {
    const size_t bytes = static_cast<size_t>(width) * item_bytes(args.dweight.dtype());
    for (int t = 0; t < context.pool.threads(); ++t) {
      partials.push_back(context.scratch.of<char>(t, bytes));
      std::fill_n(static_cast<char*>(partials.back()), bytes, char{0});
    }
  }
  const auto kernel = kernels(context.isa).backward[args.x.dtype()];
  context.pool.run(static_cast<size_t>(args.x.dim(0)), grain_rows(args.x),
                   [&](int thread, size_t first, size_t last) {
                     kernel(p, partials.empty() ? nullptr : partials[static_cast<size_t>(thread)],
                            static_cast<int64_t>(first), static_cast<int64_t>(last));
                   });
  if (!args.dweight) return;
  if (args.dweight.dtype() == DType::f64) {
    add_partials(partials, args.dweight.data<double>(), width);
  } else {
    add_partials(partials, args.dweight.data<float>(), width);
  }
}

}  // namespace gangway::cpu

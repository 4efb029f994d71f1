#include "ops/cpu/kernels/adafactor_kernels.h"

#include <algorithm>
#include <cmath>

#include "ops/cpu/operations.h"

namespace gangway::cpu {
namespace {

const AdafactorKernels& kernels(Isa isa) {
  return choose(isa, portable::adafactor_kernels, avx2::adafactor_kernels, avx512::adafactor_kernels);
}

Stored stored(const Tensor& t) { return t ? Stored{t.raw(), t.dtype()} : Stored{}; }

// Calls task(first, last) for ranges of all rows of g [B, R, C].
template <typename Task>
void over_rows(Context& context, const Tensor& g, Task&& task) {
  constexpr int64_t kGrain = 8192;
  const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, g.dim(2)));
  context.pool.run(
      static_cast<size_t>(g.dim(0) * g.dim(1)), static_cast<size_t>(grain),
      [&](int, size_t first, size_t last) { task(static_cast<int64_t>(first), static_cast<int64_t>(last)); });
}

AdafactorUpdate update_of(const AdafactorNormArgs& args) {
  AdafactorUpdate u;
  u.g = stored(args.g);
  u.row = stored(args.rows);
  u.column = stored(args.columns);
  u.totals = args.totals ? args.totals.data<double>() : nullptr;
  u.row_count = args.g.dim(1);
  u.column_count = args.g.dim(2);
  u.all_rows = args.row_count;
  u.g_factor = args.g_factor;
  u.least = args.least;
  return u;
}

}  // namespace

void factor_sums(Context& context, const FactorSumsArgs& args) {
  FactorSums sums;
  sums.g = stored(args.g);
  sums.rows = args.rows ? args.rows.data<double>() : nullptr;
  sums.columns = args.columns ? args.columns.data<double>() : nullptr;
  sums.row_count = args.g.dim(1);
  sums.column_count = args.g.dim(2);
  sums.g_factor = args.g_factor;
  if (args.g.count() == 0) return;
  const AdafactorKernels& k = kernels(context.isa);
  if (args.rows)
    over_rows(context, args.g, [&](int64_t first, int64_t last) { k.row_sums(sums, first, last); });
  // The order of a column's sum does not depend on the number of threads.
  constexpr size_t kColumns = 64;
  for (int64_t matrix = 0; args.columns && matrix < args.g.dim(0); ++matrix)
    context.pool.run(static_cast<size_t>(sums.column_count), kColumns, [&](int, size_t first, size_t last) {
      k.column_sums(sums, matrix, static_cast<int64_t>(first), static_cast<int64_t>(last));
    });
}

void adafactor_norm(Context& context, const AdafactorNormArgs& args) {
  if (args.g.count() == 0) return;
  const AdafactorUpdate update = update_of(args);
  const auto rows = static_cast<size_t>(args.g.dim(0) * args.g.dim(1));
  double* const squares = context.scratch.of<double>(0, rows);
  over_rows(context, args.g,
            [&](int64_t first, int64_t last) { kernels(context.isa).squares(update, squares, first, last); });
  double total = *args.squares.data<double>();
  for (size_t row = 0; row < rows; ++row) total += squares[row];
  *args.squares.data<double>() = total;
}

void adafactor(Context& context, const AdafactorArgs& args) {
  if (args.p.count() == 0) return;
  const auto rms = [&](const Tensor& squares) {
    return std::sqrt(*squares.data<double>() / static_cast<double>(args.count));
  };
  const double lr = args.control.lr * args.lr_scale, steps = static_cast<double>(args.control.step);
  const double rate = std::max(rms(args.p_squares), args.eps) * std::min(lr, 1 / std::sqrt(steps));
  AdafactorStep step;
  step.update = update_of(args.update);
  step.p = stored(args.p);
  step.copy = stored(args.copy);
  step.keep = 1 - lr * args.weight_decay;
  step.rate = rate / std::max(rms(args.update.squares) / args.threshold, 1.0);
  over_rows(context, args.update.g,
            [&](int64_t first, int64_t last) { kernels(context.isa).step(step, first, last); });
}

}  // namespace gangway::cpu

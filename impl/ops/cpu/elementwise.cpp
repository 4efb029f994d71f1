#include "ops/cpu/elementwise.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/philox.h"
#include "ops/cpu/kernels/elementwise_kernels.h"
#include "ops/cpu/operations.h"

namespace gangway::cpu {
namespace {

constexpr size_t kGrain = 16384;  // the fewest elements that are worth a thread
// The elements of a partial sum. The blocks are fixed, so that the order of a sum does not depend on the
// number of threads.
constexpr size_t kNormBlock = 8192;

const ElementwiseKernels& kernels(Isa isa) {
  return choose(isa, portable::elementwise_kernels, avx2::elementwise_kernels, avx512::elementwise_kernels);
}

Elements input(const Tensor& t) { return {t.raw(), t.dtype()}; }
MutableElements output(const Tensor& t) { return {t.raw(), t.dtype()}; }

template <typename Task>
void over_elements(Context& context, const Tensor& t, Task&& task) {
  context.pool.run(static_cast<size_t>(t.count()), kGrain, [&](int, size_t first, size_t last) {
    task(static_cast<int64_t>(first), static_cast<int64_t>(last));
  });
}

// Returns the offset, in elements, of row `row` (over all dims but the last, row-major).
int64_t row_offset(const Tensor& t, int64_t row) {
  int64_t at = 0;
  for (int d = t.rank() - 2; d >= 0; --d) {
    at += row % t.dim(d) * t.stride(d);
    row /= t.dim(d);
  }
  return at;
}

// Copies n elements of `bytes` bytes. Neighbours are x_step and y_step elements apart.
void copy_strided(const char* x, int64_t x_step, char* y, int64_t y_step, int64_t n, size_t bytes) {
  if (x_step == 1 && y_step == 1) {
    std::memcpy(y, x, static_cast<size_t>(n) * bytes);
    return;
  }
  const int64_t width = static_cast<int64_t>(bytes);
  for (int64_t i = 0; i < n; ++i) std::memcpy(y + i * y_step * width, x + i * x_step * width, bytes);
}

void cast_rows(Context& context, const Tensor& x, const Tensor& y) {
  const int64_t columns = x.rank() == 0 ? 1 : x.dim(-1);
  const int64_t x_step = x.rank() == 0 ? 1 : x.stride(-1), y_step = y.rank() == 0 ? 1 : y.stride(-1);
  const int64_t x_bytes = static_cast<int64_t>(item_bytes(x.dtype()));
  const int64_t y_bytes = static_cast<int64_t>(item_bytes(y.dtype()));
  const bool same = x.dtype() == y.dtype();
  const ElementwiseKernels& k = kernels(context.isa);
  const size_t grain = std::max<size_t>(1, kGrain / static_cast<size_t>(columns));
  context.pool.run(static_cast<size_t>(x.count() / columns), grain, [&](int, size_t first, size_t last) {
    for (size_t row = first; row < last; ++row) {
      const char* from = x.data<const char>() + row_offset(x, static_cast<int64_t>(row)) * x_bytes;
      char* to = y.data<char>() + row_offset(y, static_cast<int64_t>(row)) * y_bytes;
      if (same) {
        copy_strided(from, x_step, to, y_step, columns, static_cast<size_t>(x_bytes));
      } else if (x_step == 1 && y_step == 1) {
        k.cast({from, x.dtype()}, {to, y.dtype()}, 0, columns);
      } else {
        k.cast_strided({from, x.dtype()}, x_step, {to, y.dtype()}, y_step, columns);
      }
    }
  });
}

NormKind kind_of(double p) {
  if (std::isinf(p)) return NormKind::infinity;
  return p == 2 ? NormKind::two : p == 1 ? NormKind::one : NormKind::power;
}

}  // namespace

void cast(Context& context, const Tensor& x, const Tensor& y) {
  if (x.count() == 0) return;
  if (!x.contiguous() || !y.contiguous()) {
    cast_rows(context, x, y);
  } else if (x.dtype() == y.dtype()) {
    context.device.copy(y.raw(), x.raw(), x.bytes(), context.device.stream());
  } else {
    over_elements(context, x, [&](int64_t first, int64_t last) {
      kernels(context.isa).cast(input(x), output(y), first, last);
    });
  }
}

void fill(Context& context, const Tensor& y, double value) {
  if (y.dtype() == DType::i64) {
    std::fill_n(y.data<int64_t>(), y.count(), static_cast<int64_t>(value));
    return;
  }
  over_elements(context, y, [&](int64_t first, int64_t last) {
    kernels(context.isa).fill(output(y), value, first, last);
  });
}

void add(Context& context, const Tensor& x, double factor, const Tensor& y) {
  over_elements(context, y, [&](int64_t first, int64_t last) {
    kernels(context.isa).add(input(x), factor, output(y), first, last);
  });
}

void scale(Context& context, const Tensor& y, double factor) {
  over_elements(context, y, [&](int64_t first, int64_t last) {
    kernels(context.isa).scale(output(y), factor, first, last);
  });
}

void divide_by_norm(Context& context, const DivideByNormArgs& args) {
  scale(context, args.y, 1 / std::max(std::sqrt(*args.power.data<double>()), args.least));
}

void column_sum(Context& context, const Tensor& x, const Tensor& y) {
  // Columns are summed in groups of at least a cache line, so that the order of each sum does not depend on
  // the number of threads.
  constexpr int64_t kGroup = 64;
  const int64_t rows = x.dim(0), columns = x.dim(1);
  const int64_t groups = (columns + kGroup - 1) / kGroup;
  const size_t grain = std::max<size_t>(1, kGrain / static_cast<size_t>(kGroup * std::max<int64_t>(1, rows)));
  context.pool.run(static_cast<size_t>(groups), grain, [&](int, size_t first, size_t last) {
    kernels(context.isa)
        .column_sum(input(x), rows, columns, y.raw(), static_cast<int64_t>(first) * kGroup,
                    std::min(columns, static_cast<int64_t>(last) * kGroup));
  });
}

void norm_power(Context& context, const Tensor& x, double p, const Tensor& out) {
  const int64_t count = x.count();
  const size_t blocks = (static_cast<size_t>(count) + kNormBlock - 1) / kNormBlock;
  const NormKind kind = kind_of(p);
  double* partial = context.scratch.of<double>(0, blocks);
  context.pool.run(blocks, 2, [&](int, size_t first, size_t last) {
    for (size_t b = first; b < last; ++b) {
      const int64_t begin = static_cast<int64_t>(b * kNormBlock);
      const int64_t end = std::min(count, begin + static_cast<int64_t>(kNormBlock));
      partial[b] = kernels(context.isa).norm(input(x), kind, p, begin, end);
    }
  });
  double total = *out.data<double>();
  for (size_t b = 0; b < blocks; ++b) {
    if (kind != NormKind::infinity) {
      total += partial[b];
    } else if (partial[b] > total || std::isnan(partial[b])) {
      total = partial[b];
    }
    if (std::isnan(total)) break;
  }
  *out.data<double>() = total;
}

void checksum(Context& context, const ChecksumArgs& args) {
  const size_t words = args.x.bytes() / sizeof(uint32_t);
  std::atomic<uint32_t> sum = 0;
  context.pool.run(words, kGrain, [&](int, size_t first, size_t last) {
    sum += kernels(context.isa)
               .checksum(static_cast<const float*>(args.x.raw()), args.key, static_cast<int64_t>(first),
                         static_cast<int64_t>(last));
  });
  auto* const to = args.sum.data<int64_t>();
  *to = static_cast<uint32_t>(static_cast<uint32_t>(*to) + sum);
}

void fill_normal(Context& context, const Tensor& y, uint64_t key, uint64_t first_element, double deviation) {
  constexpr size_t kBatch = 1024;
  constexpr size_t kNormalsGrain = 2048;  // a normal costs far more than copying an element
  context.pool.run(static_cast<size_t>(y.count()), kNormalsGrain, [&](int, size_t first, size_t last) {
    std::array<double, kBatch> normals;
    for (size_t at = first; at < last; at += kBatch) {
      const size_t n = std::min(kBatch, last - at);
      philox_normals(key, first_element + at, n, deviation, normals.data());
      const size_t bytes = item_bytes(y.dtype());
      kernels(context.isa)
          .cast({normals.data(), DType::f64}, {y.data<char>() + at * bytes, y.dtype()}, 0,
                static_cast<int64_t>(n));
    }
  });
}

void id_range(Context& context, const Tensor& ids, int64_t ignore, const Tensor& out) {
  struct Range {
    int64_t lowest = 0, highest = -1, count = 0;
    void join(const Range& other) {
      if (other.count == 0) return;
      lowest = count == 0 ? other.lowest : std::min(lowest, other.lowest);
      highest = count == 0 ? other.highest : std::max(highest, other.highest);
      count += other.count;
    }
  };
  std::vector<Range> found(static_cast<size_t>(context.pool.threads()));
  context.pool.run(static_cast<size_t>(ids.count()), kGrain, [&](int thread, size_t first, size_t last) {
    Range range;
    for (size_t i = first; i < last; ++i)
      if (const int64_t id = ids.data<int64_t>()[i]; id != ignore) range.join({id, id, 1});
    found[static_cast<size_t>(thread)].join(range);
  });
  Range all;
  for (const Range& range : found) all.join(range);
  auto* to = out.data<int64_t>();
  to[0] = all.lowest;
  to[1] = all.highest;
  to[2] = all.count;
}

}  // namespace gangway::cpu

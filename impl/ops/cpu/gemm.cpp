// oneDNN computes a product if it has fast instructions for the dtype here (vendor_is_fast). Otherwise our
// own blocked product does, which converts bf16 and f16 to panels of f32. Threads of the pool share the
// result, but never a sum over k. Beyond what Ops::gemm promises, one of a and b may be f32 while the other
// is bf16 or f16; other operations use this.
#include "ops/cpu/operations.h"

#include <algorithm>

#include "ops/cpu/gemm_cache.h"
#include "ops/cpu/kernels/product_kernels.h"

// M, N, K: the rows and columns of c, and the depth of the reduction.
//
// GFLOP/s on one core of a Zen 3 (AVX2), f32, best of 8, for the layouts of a model with width 512,
// feed-forward width 1408, vocabulary 8192 and 1024 tokens. sgemm is dnnl_sgemm, matmul is oneDNN's matmul
// primitive, own is kernels/product_kernels.cpp:
//                                  sgemm  matmul  own                           sgemm  matmul  own
//   forward 1024 x 1408 x 512  NT     94      94   89     dW 1408 x 512 x 1024 TN   93      92   87
//   forward 1024 x 512 x 1408  NT     91      91   88     dW  512 x 512 x 1024 TN   60      60   89
//   dX      1024 x 512 x 1408  NN     92      91   88     head forward 128 rows     88      88   76
//   dX      1024 x 512 x 512   NN     95      95   88     head dX 256 rows          64      64   72
// sgemm and the primitive run the same code there. This file uses the primitive, which costs 0.4 microseconds
// more for each call, but supports bias and bf16 and has its own AVX-512 kernels. Our own product is faster
// where oneDNN does not pack (packs_badly below), and where oneDNN only emulates bf16: with AVX-512, but
// without products of bf16 in the processor, 3.3 to 4.3 times as fast.

namespace gangway::cpu {
namespace {

const ProductKernels& kernels(Isa isa) {
  return choose(isa, portable::product_kernels, avx2::product_kernels, avx512::product_kernels);
}

// How a product is cut into a grid of slices. Boundaries are at multiples of 16 elements.
struct Grid {
  int64_t rows = 1, columns = 1;
};

int64_t boundary(int64_t size, int64_t parts, int64_t i) {
  return i == parts ? size : std::min(size, (size * i / parts + 8) / 16 * 16);
}

Grid cut(int64_t m, int64_t n, int64_t k, int threads) {
  constexpr double kWorthAThread = 1 << 20;  // in multiplications: about 20 microseconds
  const double worth =
      static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) / kWorthAThread;
  const int64_t parts = static_cast<int64_t>(std::clamp(worth, 1.0, static_cast<double>(threads)));
  Grid best{1, 1};
  double least = -1;
  for (int64_t rows = 1; rows <= parts; ++rows) {
    if (parts % rows != 0) continue;
    const double edge = static_cast<double>(m) / static_cast<double>(rows) +
                        static_cast<double>(n) / static_cast<double>(parts / rows);
    if (least < 0 || edge < least) {
      least = edge;
      best = {rows, parts / rows};
    }
  }
  return best;
}

const char* bytes_at(const Tensor& t, int64_t elements) {
  return static_cast<const char*>(t.raw()) + elements * static_cast<int64_t>(item_bytes(t.dtype()));
}

int64_t row_stride(const Tensor& t) { return t.dim(0) > 1 ? t.stride(0) : std::max<int64_t>(1, t.dim(1)); }

// One slice of the product: rows [m0, m1) and columns [n0, n1).
struct Slice {
  int64_t m0, m1, n0, n1;
};

GemmPointers pointers(const GemmArgs& args, const Slice& s) {
  GemmPointers p;
  p.a = bytes_at(args.a, args.transpose_a ? s.m0 : s.m0 * row_stride(args.a));
  p.b = bytes_at(args.b, args.transpose_b ? s.n0 * row_stride(args.b) : s.n0);
  p.c = const_cast<char*>(bytes_at(args.c, s.m0 * row_stride(args.c) + s.n0));
  if (args.bias) p.bias = bytes_at(args.bias, s.n0);
  return p;
}

// Returns whether oneDNN would be slow for its lack of packing, which happens with AVX2 only. oneDNN leaves
// operands unpacked if 1/m + 1/n >= 0.0038. If rows of b (or of a transposed a) are then a multiple of 1 KiB
// apart, its loads compete for few cache sets.
bool packs_badly(const GemmArgs& args, int64_t m, int64_t n) {
  if (m < 64 || n < 64 || args.transpose_b) return false;
  if (1.0 / static_cast<double>(m) + 1.0 / static_cast<double>(n) < 0.0038) return false;
  return row_stride(args.b) % 256 == 0 || (args.transpose_a && row_stride(args.a) % 256 == 0);
}

// Up to this many multiplications, our own loops are faster than a call of oneDNN.
constexpr int64_t kTiny = 32 * 32 * 32;

// Returns whether oneDNN is at least as fast as our own product. That it supports a dtype does not say so: it
// emulates bf16 where the processor has no products of it, and a cap of its own (ONEDNN_MAX_CPU_ISA) may keep
// it from vectors that we use. It does not know our cap, under which bf16 therefore uses our own product.
// f16 and f64 always do: oneDNN has f16 only on the newest processors, and does not sum in f32 on all of
// them, and has no f64 on a CPU.
bool vendor_is_fast(const Context& context, DType dtype) {
  if (context.isa == Isa::portable) return false;
  if (dtype == DType::f32)
    return vendor_has(context.isa == Isa::avx512 ? VendorIsa::avx512 : VendorIsa::avx2);
  return dtype == DType::bf16 && context.isa == processor_isa() && vendor_has(VendorIsa::avx512_bf16);
}

bool vendor_multiplies(const Context& context, const GemmArgs& args, int64_t m, int64_t n, int64_t k) {
  const DType dtype = args.a.dtype();
  if (!vendor_is_fast(context, dtype) || args.b.dtype() != dtype || m * n * k <= kTiny) return false;
  return context.isa == Isa::avx512 || dtype != DType::f32 || !packs_badly(args, m, n);
}

GemmSlice vendor_slice(const GemmArgs& args, const Slice& s, int64_t k) {
  return {.m = s.m1 - s.m0,
          .n = s.n1 - s.n0,
          .k = k,
          .a_row = row_stride(args.a),
          .b_row = row_stride(args.b),
          .c_row = row_stride(args.c),
          .dtype = args.a.dtype(),
          .c_dtype = args.c.dtype(),
          .transpose_a = args.transpose_a,
          .transpose_b = args.transpose_b,
          .bias = static_cast<bool>(args.bias),
          .accumulate = args.accumulate};
}

void own_slice(Context& context, const GemmArgs& args, const Slice& s, int64_t k, int thread) {
  const GemmPointers at = pointers(args, s);
  Product p;
  p.m = s.m1 - s.m0;
  p.n = s.n1 - s.n0;
  p.k = k;
  p.a = at.a;
  p.b = at.b;
  p.c = at.c;
  p.bias = at.bias;
  p.a_row = args.transpose_a ? 1 : row_stride(args.a);
  p.a_column = args.transpose_a ? row_stride(args.a) : 1;
  p.b_row = args.transpose_b ? 1 : row_stride(args.b);
  p.b_column = args.transpose_b ? row_stride(args.b) : 1;
  p.c_row = row_stride(args.c);
  p.a_dtype = args.a.dtype();
  p.b_dtype = args.b.dtype();
  p.c_dtype = args.c.dtype();
  if (args.bias) p.bias_dtype = args.bias.dtype();
  p.accumulate = args.accumulate;
  p.panels = context.scratch.of<char>(thread, kProductBytes);
  kernels(context.isa).product(p);
}

}  // namespace

bool gemm_uses_onednn(Context& context, DType dtype) {
  if (!vendor_is_fast(context, dtype)) return false;
  constexpr int64_t kSize = 64;
  GemmSlice slice{.m = kSize, .n = kSize, .k = kSize, .a_row = kSize, .b_row = kSize, .c_row = kSize};
  slice.dtype = slice.c_dtype = dtype;
  bool found = false;
  context.pool.run(1, 1, [&](int, size_t, size_t) { found = context.gemm_cache.find(slice) != nullptr; });
  return found;
}

void gemm(Context& context, const GemmArgs& args) {
  const int64_t m = args.c.dim(0), n = args.c.dim(1), k = args.a.dim(args.transpose_a ? 0 : 1);
  if (m == 0 || n == 0) return;
  constexpr int kSteadySlices = 8;  // enough for as many threads, and not too small for one
  const Grid grid = cut(m, n, k, args.steady ? kSteadySlices : context.pool.threads());
  const auto slice = [&](int64_t i) {
    const int64_t row = i / grid.columns, column = i % grid.columns;
    return Slice{boundary(m, grid.rows, row), boundary(m, grid.rows, row + 1),
                 boundary(n, grid.columns, column), boundary(n, grid.columns, column + 1)};
  };
  const int64_t parts = grid.rows * grid.columns;
  GemmCache& cache = context.gemm_cache;
  cache.begin();
  // find() also runs inside the pool: some kernels of oneDNN keep the OpenMP thread count under which they
  // are made.
  context.pool.run(1, 1, [&](int, size_t, size_t) {
    for (int64_t i = 0; i < parts; ++i) {
      const Slice s = slice(i);
      const bool vendor = k > 0 && s.m1 > s.m0 && s.n1 > s.n0 &&
                          vendor_multiplies(context, args, s.m1 - s.m0, s.n1 - s.n0, k);
      cache.slices().push_back(vendor ? cache.find(vendor_slice(args, s, k)) : nullptr);
    }
  });
  context.pool.run(static_cast<size_t>(parts), 1, [&](int thread, size_t first, size_t last) {
    for (size_t i = first; i < last; ++i) {
      const Slice s = slice(static_cast<int64_t>(i));
      if (const GemmCache::Entry* entry = cache.slices()[i]; entry != nullptr) {
        cache.run(*entry, thread, pointers(args, s), context.scratch);
      } else {
        own_slice(context, args, s, k, thread);
      }
    }
  });
}

}  // namespace gangway::cpu

#include "ops/cuda/activations.h"
#include "ops/cuda/families.h"

// T rows of width F. Each thread computes n neighbouring elements of one row. SwiGLU has kernels of its own,
// because the other activations need more registers.

namespace gangway::cuda {
namespace {

constexpr int kThreads = 256;

template <typename T>
struct Forward {
  const T *gate, *up;
  T* y_TF;
  int64_t rows, width, gate_stride, up_stride;
  Activation activation;
};

template <typename T, int n, bool is_silu>
__global__ void swiglu_kernel(Forward<T> p) {
  using S = Wide<T>;
  const int64_t of_row = p.width / n, all = p.rows * of_row;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < all; i += stride) {
    const int64_t t = i / of_row, at = i % of_row * n;
    const Pack<T, n> gate = load<n>(p.gate + t * p.gate_stride + at),
                     up = load<n>(p.up + t * p.up_stride + at);
    Pack<T, n> y;
    for (int j = 0; j < n; ++j) {
      const S g = widen(gate.at[j]);
      const S value = (is_silu ? silu(g) : activate(p.activation, g)).value;
      y.at[j] = narrow<T>(value * widen(up.at[j]));
    }
    store<n>(p.y_TF + t * p.width + at, y);
  }
}

template <typename T>
struct Backward {
  const T *gate, *up, *dy_TF;
  T *dgate, *dup, *y_TF;
  int64_t rows, width, gate_stride, up_stride, dgate_stride, dup_stride;
  Activation activation;
};

template <typename T, int n, bool is_silu>
__global__ void swiglu_backward_kernel(Backward<T> p) {
  using S = Wide<T>;
  const int64_t of_row = p.width / n, all = p.rows * of_row;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < all; i += stride) {
    const int64_t t = i / of_row, at = i % of_row * n;
    const Pack<T, n> gate = load<n>(p.gate + t * p.gate_stride + at),
                     up = load<n>(p.up + t * p.up_stride + at);
    const Pack<T, n> dy = load<n>(p.dy_TF + t * p.width + at);
    Pack<T, n> dgate, dup, y;
    for (int j = 0; j < n; ++j) {
      const S g = widen(gate.at[j]), u = widen(up.at[j]), d = widen(dy.at[j]);
      const Activated<S> a = is_silu ? silu(g) : activate(p.activation, g);
      dgate.at[j] = narrow<T>(d * u * a.slope);
      dup.at[j] = narrow<T>(d * a.value);
      y.at[j] = narrow<T>(a.value * u);
    }
    store<n>(p.dgate + t * p.dgate_stride + at, dgate);
    store<n>(p.dup + t * p.dup_stride + at, dup);
    if (p.y_TF != nullptr) store<n>(p.y_TF + t * p.width + at, y);
  }
}

Grid grid_of(int64_t rows, int64_t width, int n) {
  return {blocks(pieces(rows * (width / n), kThreads)), kThreads, 0};
}

}  // namespace

void swiglu(const SwigluArgs& args, Stream& stream) {
  const int64_t rows = args.gate.dim(0), width = args.gate.dim(1);
  if (rows == 0 || width == 0) return;
  with_float(args.gate.dtype(), [&](auto type) {
    using T = decltype(type);
    const Forward<T> p = {args.gate.data<T>(), args.up.data<T>(), args.y.data<T>(), rows, width,
                          args.gate.stride(0), args.up.stride(0), args.activation};
    const bool fit = fits_packs({address(args.gate), address(args.up), address(args.y), row_bytes(args.gate),
                                 row_bytes(args.up), width * sizeof(T)});
    with_packs<T>(fit, [&](auto n) {
      const auto kernel =
          args.activation == Activation::silu ? swiglu_kernel<T, n(), true> : swiglu_kernel<T, n(), false>;
      launch("swiglu", kernel, grid_of(rows, width, n()), native(stream), p);
    });
  });
}

void swiglu_backward(const SwigluBackwardArgs& args, Stream& stream) {
  const int64_t rows = args.gate.dim(0), width = args.gate.dim(1);
  if (rows == 0 || width == 0) return;
  with_float(args.gate.dtype(), [&](auto type) {
    using T = decltype(type);
    const Backward<T> p = {args.gate.data<T>(),
                           args.up.data<T>(),
                           args.dy.data<T>(),
                           args.dgate.data<T>(),
                           args.dup.data<T>(),
                           args.y ? args.y.data<T>() : nullptr,
                           rows,
                           width,
                           args.gate.stride(0),
                           args.up.stride(0),
                           args.dgate.stride(0),
                           args.dup.stride(0),
                           args.activation};
    const bool fit = fits_packs({address(args.gate), address(args.up), address(args.dy), address(args.dgate),
                                 address(args.dup), address(args.y), row_bytes(args.gate), row_bytes(args.up),
                                 row_bytes(args.dgate), row_bytes(args.dup), width * sizeof(T)});
    with_packs<T>(fit, [&](auto n) {
      const auto kernel = args.activation == Activation::silu ? swiglu_backward_kernel<T, n(), true>
                                                              : swiglu_backward_kernel<T, n(), false>;
      launch("swiglu_backward", kernel, grid_of(rows, width, n()), native(stream), p);
    });
  });
}

}  // namespace gangway::cuda

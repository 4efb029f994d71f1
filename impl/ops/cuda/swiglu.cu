#include "ops/cuda/activations.h"
#include "ops/cuda/families.h"
#include "ops/cuda/row_grid.h"

// T rows of width F. Each thread computes n neighbouring elements of one row. SwiGLU has kernels of its own,
// because the other activations need more registers.

namespace gangway::cuda {
namespace {

template <typename T>
struct Forward {
  const T *gate, *up;
  T* y_TF;
  int64_t rows, width, gate_stride, up_stride;
  Activation activation;
};

template <typename T, int n, bool is_silu>
__global__ void swiglu_kernel(Forward<T> p, RowGrid grid) {
  using S = Wide<T>;
  for_row_packs(grid, p.rows, [&](int64_t t, unsigned pack) {
    const int64_t at = static_cast<int64_t>(pack) * n;
    const Pack<T, n> gate = load<n>(p.gate + t * p.gate_stride + at),
                     up = load<n>(p.up + t * p.up_stride + at);
    Pack<T, n> y;
    for (int j = 0; j < n; ++j) {
      const S g = widen(gate.at[j]);
      const S value = (is_silu ? silu(g) : activate(p.activation, g)).value;
      y.at[j] = narrow<T>(value * widen(up.at[j]));
    }
    store<n>(p.y_TF + t * p.width + at, y);
  });
}

template <typename T>
struct Backward {
  const T *gate, *up, *dy_TF;
  T *dgate, *dup, *y_TF;
  int64_t rows, width, gate_stride, up_stride, dgate_stride, dup_stride;
  Activation activation;
};

template <typename T, int n, bool is_silu>
__global__ void swiglu_backward_kernel(Backward<T> p, RowGrid grid) {
  using S = Wide<T>;
  for_row_packs(grid, p.rows, [&](int64_t t, unsigned pack) {
    const int64_t at = static_cast<int64_t>(pack) * n;
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
  });
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
      const RowGrid grid = row_grid(width / n());
      launch("swiglu", kernel, row_launch(grid, rows), native(stream), p, grid);
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
      const RowGrid grid = row_grid(width / n());
      launch("swiglu_backward", kernel, row_launch(grid, rows), native(stream), p, grid);
    });
  });
}

}  // namespace gangway::cuda

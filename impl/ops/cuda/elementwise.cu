#include "ops/cuda/arrays.h"
#include "ops/cuda/families.h"

namespace gangway::cuda {
namespace {

template <typename S, int n>
__global__ void cast_kernel(Array x, Array y, int64_t count) {
  for_elements<n>(count, [&](auto m, int64_t at) { write<m()>(y, at, read<m(), S>(x, at)); });
}

template <typename S, int n>
__global__ void fill_kernel(Array y, double value, int64_t count) {
  for_elements<n>(count, [&](auto m, int64_t at) {
    Pack<S, m()> pack;
    for (int i = 0; i < m(); ++i) pack.at[i] = static_cast<S>(value);
    write<m()>(y, at, pack);
  });
}
__global__ void fill_integers_kernel(int64_t* y, int64_t value, int64_t count) {
  for_elements<1>(count, [&](auto, int64_t at) { y[at] = value; });
}

template <typename S, int n>
__global__ void add_kernel(Array x, S factor, Array y, int64_t count) {
  for_elements<n>(count, [&](auto m, int64_t at) {
    const Pack<S, m()> from = read<m(), S>(x, at);
    Pack<S, m()> to = read<m(), S>(y, at);
    for (int i = 0; i < m(); ++i) to.at[i] += factor * from.at[i];
    write<m()>(y, at, to);
  });
}

template <typename S, int n>
__global__ void scale_kernel(Array y, S factor, int64_t count) {
  for_elements<n>(count, [&](auto m, int64_t at) {
    Pack<S, m()> to = read<m(), S>(y, at);
    for (int i = 0; i < m(); ++i) to.at[i] *= factor;
    write<m()>(y, at, to);
  });
}

template <typename S, int n>
__global__ void divide_by_norm_kernel(Array y, const double* power, double least, int64_t count) {
  const double norm = sqrt(*power);
  const S factor = static_cast<S>(1 / (norm < least ? least : norm));
  for_elements<n>(count, [&](auto m, int64_t at) {
    Pack<S, m()> to = read<m(), S>(y, at);
    for (int i = 0; i < m(); ++i) to.at[i] *= factor;
    write<m()>(y, at, to);
  });
}

struct Strided {
  int rank;
  int64_t dims[kMaxDims], x_strides[kMaxDims], y_strides[kMaxDims];
};

__device__ inline void places(const Strided& s, int64_t i, int64_t& x, int64_t& y) {
  x = y = 0;
  for (int d = s.rank - 1; d >= 0; --d) {
    x += i % s.dims[d] * s.x_strides[d];
    y += i % s.dims[d] * s.y_strides[d];
    i /= s.dims[d];
  }
}

template <typename S>
__global__ void cast_strided_kernel(Array x, Array y, Strided s, int64_t count) {
  for_elements<1>(count, [&](auto, int64_t i) {
    int64_t from = 0, to = 0;
    places(s, i, from, to);
    write<1>(y, to, read<1, S>(x, from));
  });
}

// Copies elements of any dtype. An element is several values of T.
template <typename T>
__global__ void copy_strided_kernel(const T* x, T* y, Strided s, int64_t units, int64_t count) {
  for_elements<1>(count * units, [&](auto, int64_t i) {
    int64_t from = 0, to = 0;
    places(s, i / units, from, to);
    y[to * units + i % units] = x[from * units + i % units];
  });
}

Strided strided(const Tensor& x, const Tensor& y) {
  Strided s{x.rank(), {}, {}, {}};
  for (int d = 0; d < s.rank; ++d) {
    s.dims[d] = x.dim(d);
    s.x_strides[d] = x.stride(d);
    s.y_strides[d] = y.stride(d);
  }
  return s;
}

void copy_strided(const Tensor& x, const Tensor& y, Stream& stream) {
  const int64_t item = static_cast<int64_t>(item_bytes(x.dtype())), count = x.count();
  const auto copy = [&](auto type) {
    using T = decltype(type);
    const int64_t units = item / static_cast<int64_t>(sizeof(T));
    launch("cast", copy_strided_kernel<T>, flat_grid(count * units, 1), native(stream), x.data<T>(),
           y.data<T>(), strided(x, y), units, count);
  };
  if (item % 8 == 0) return copy(uint64_t{});
  if (item == 4) return copy(uint32_t{});
  if (item == 2) return copy(uint16_t{});
  copy(uint8_t{});
}

bool has_f64(const Tensor& a, const Tensor& b) { return a.dtype() == DType::f64 || b.dtype() == DType::f64; }

// Calls body(S{}, n) with the type of the computation, f32 or f64, and the number of elements of a pack.
template <typename Body>
void with_wide(bool f64, std::initializer_list<const Tensor*> tensors, Body&& body) {
  uint64_t addresses = 0;
  for (const Tensor* const t : tensors) addresses |= address(*t);
  const bool fit = fits_packs({addresses});
  const auto with = [&](auto type) { with_packs<decltype(type)>(fit, [&](auto n) { body(type, n); }); };
  if (f64) return with(double{});
  with(float{});
}

}  // namespace

void cast(const Tensor& x, const Tensor& y, Stream& stream) {
  const int64_t count = x.count();
  if (count == 0) return;
  const bool same = x.dtype() == y.dtype();
  if (x.contiguous() && y.contiguous()) {
    if (same)
      return check(cudaMemcpyAsync(y.raw(), x.raw(), x.bytes(), cudaMemcpyDefault, native(stream)),
                   "cudaMemcpyAsync");
    return with_wide(has_f64(x, y), {&x, &y}, [&](auto type, auto n) {
      launch("cast", cast_kernel<decltype(type), n()>, flat_grid(count, n()), native(stream), array_of(x),
             array_of(y), count);
    });
  }
  if (same) return copy_strided(x, y, stream);
  const auto with = [&](auto type) {
    launch("cast", cast_strided_kernel<decltype(type)>, flat_grid(count, 1), native(stream), array_of(x),
           array_of(y), strided(x, y), count);
  };
  if (has_f64(x, y)) return with(double{});
  with(float{});
}

void fill(const Tensor& y, double value, Stream& stream) {
  const int64_t count = y.count();
  if (count == 0) return;
  if (y.dtype() == DType::i64)
    return launch("fill", fill_integers_kernel, flat_grid(count, 1), native(stream), y.data<int64_t>(),
                  static_cast<int64_t>(value), count);
  with_wide(y.dtype() == DType::f64, {&y}, [&](auto type, auto n) {
    launch("fill", fill_kernel<decltype(type), n()>, flat_grid(count, n()), native(stream), array_of(y),
           value, count);
  });
}

void add(const Tensor& x, double factor, const Tensor& y, Stream& stream) {
  const int64_t count = y.count();
  if (count == 0) return;
  with_wide(has_f64(x, y), {&x, &y}, [&](auto type, auto n) {
    using S = decltype(type);
    launch("add", add_kernel<S, n()>, flat_grid(count, n()), native(stream), array_of(x),
           static_cast<S>(factor), array_of(y), count);
  });
}

void scale(const Tensor& y, double factor, Stream& stream) {
  const int64_t count = y.count();
  if (count == 0) return;
  with_wide(y.dtype() == DType::f64, {&y}, [&](auto type, auto n) {
    using S = decltype(type);
    launch("scale", scale_kernel<S, n()>, flat_grid(count, n()), native(stream), array_of(y),
           static_cast<S>(factor), count);
  });
}

void divide_by_norm(const DivideByNormArgs& args, Stream& stream) {
  const int64_t count = args.y.count();
  if (count == 0) return;
  with_wide(args.y.dtype() == DType::f64, {&args.y}, [&](auto type, auto n) {
    launch("divide_by_norm", divide_by_norm_kernel<decltype(type), n()>, flat_grid(count, n()),
           native(stream), array_of(args.y), args.power.data<double>(), args.least, count);
  });
}

}  // namespace gangway::cuda

#include "base/fp8.h"
#include "ops/cuda/arrays.h"
#include "ops/cuda/fp8.h"
#include "ops/cuda/reduce.h"
#include "ops/cuda/row_grid.h"

// Magnitudes are found by parts, each of which has a block, and then joined: their order does not matter.

namespace gangway::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMostParts = 256;
constexpr int64_t kRowsOfStrip = 64;         // of columns
constexpr int64_t kMostPartsOfColumn = 1024;  // each of them has every so many-th strip
constexpr float kLeastMagnitude = 1e-12f;

struct Matrix {
  Array elements;
  int64_t rows, columns, stride;
};

Matrix matrix_of(const Tensor& x) {
  return {array_of(x), x.dim(0), x.dim(1), x.dim(0) > 1 ? x.stride(0) : x.dim(1)};
}

float top_of(DType codes) { return codes == DType::f8_e4m3 ? E4m3::kTop : E5m2::kTop; }

__device__ inline float larger(float most, float x) {
  const float magnitude = fabsf(x);
  return magnitude > most ? magnitude : most;  // false for a NaN
}
__device__ inline float scale_of(float most, float top) {
  return (most > kLeastMagnitude ? most : kLeastMagnitude) / top;
}

// Block b has the rows b, b + blocks, ... Each row gets its scale, or the block its magnitude.
template <int n, bool each_row>
__global__ void fp8_rows_kernel(Matrix x, float top, float* out) {
  float* const scratch = block_memory<float>();
  float most = 0;
  const int64_t packs = x.columns / n;
#pragma unroll 1
  for (int64_t r = blockIdx.x; r < x.rows; r += gridDim.x) {
#pragma unroll 4  // loads in flight
    for (int64_t p = threadIdx.x; p < packs; p += blockDim.x) {
      const Pack<float, n> pack = read<n, float>(x.elements, r * x.stride + p * n);
      for (int e = 0; e < n; ++e) most = larger(most, pack.at[e]);
    }
    if constexpr (each_row) {
      most = block_fold(most, 0.0f, scratch, Largest());
      if (threadIdx.x == 0) out[r] = scale_of(most, top);
      most = 0;
      __syncthreads();
    }
  }
  if constexpr (!each_row) {
    most = block_fold(most, 0.0f, scratch, Largest());
    if (threadIdx.x == 0) out[blockIdx.x] = most;
  }
}

struct History {
  float* most;  // null: there is none
  int count, now, record;
};

// One block of kMostParts threads.
__global__ void fp8_tensor_scale_kernel(const float* parts, int count, History history, float top,
                                        float* scale) {
  float* const scratch = block_memory<float>();
  const int i = static_cast<int>(threadIdx.x);
  float most = block_fold(i < count ? parts[i] : 0.0f, 0.0f, scratch, Largest());
  if (i != 0) return;
  if (history.most != nullptr && most <= 0x1.fffffep127f) {
    float past = 0;
    for (int h = 0; h < history.count; ++h)
      if (h != history.now) past = larger(past, history.most[h]);
    if (history.record != 0) history.most[history.now] = larger(most, history.most[history.now]);
    if (past > 0) most = past;
  }
  *scale = scale_of(most, top);
}

// A thread has one column of the strips y, y + blocks in y, ...
__global__ void fp8_columns_kernel(Matrix x, float* parts) {
  const int64_t c = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (c >= x.columns) return;
  float most = 0;
#pragma unroll 1
  for (int64_t first = blockIdx.y * kRowsOfStrip; first < x.rows; first += gridDim.y * kRowsOfStrip) {
    const int64_t last = first + kRowsOfStrip < x.rows ? first + kRowsOfStrip : x.rows;
#pragma unroll 4  // loads in flight
    for (int64_t r = first; r < last; ++r)
      most = larger(most, read<1, float>(x.elements, r * x.stride + c).at[0]);
  }
  parts[blockIdx.y * x.columns + c] = most;
}
__global__ void fp8_column_scales_kernel(const float* parts, int64_t count, int64_t columns, float top,
                                         float* scale) {
  const int64_t c = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (c >= columns) return;
  float most = 0;
#pragma unroll 4  // loads in flight
  for (int64_t p = 0; p < count; ++p) most = larger(most, parts[p * columns + c]);
  scale[c] = scale_of(most, top);
}

struct Scales {
  const float* at;
  Fp8Scale of;
  __device__ float operator()(int64_t r, int64_t c) const {
    return at[of == Fp8Scale::tensor ? 0 : of == Fp8Scale::row ? r : c];
  }
};

template <typename Format, int n>
__global__ void fp8_codes_kernel(Matrix x, Scales scale, uint8_t* codes, RowGrid grid) {
  for_row_packs(grid, x.rows, [&](int64_t r, unsigned at) {
    const int64_t c = static_cast<int64_t>(at) * n;
    const Pack<float, n> pack = read<n, float>(x.elements, r * x.stride + c);
    Pack<uint8_t, n> made;
    for (int e = 0; e < n; ++e) made.at[e] = to_fp8<Format>(pack.at[e] / scale(r, c + e));
    store<n>(codes + r * x.columns + c, made);
  });
}

// A block has a square of kSide x kSide elements, which its shared memory transposes.
constexpr int kSide = 32, kSideThreads = kSide * 8;
template <typename Format>
__global__ void fp8_transposed_kernel(Matrix x, Scales scale, uint8_t* transposed, unsigned squares) {
  uint8_t* const square = block_memory<uint8_t>();
  const int64_t first_row = static_cast<int64_t>(blockIdx.x / squares) * kSide,
                first_column = static_cast<int64_t>(blockIdx.x % squares) * kSide;
  const int lane = static_cast<int>(threadIdx.x) % kSide, strip = static_cast<int>(threadIdx.x) / kSide;
  for (int i = strip; i < kSide; i += 8) {
    const int64_t r = first_row + i, c = first_column + lane;
    if (r < x.rows && c < x.columns)
      square[i * (kSide + 1) + lane] =
          to_fp8<Format>(read<1, float>(x.elements, r * x.stride + c).at[0] / scale(r, c));
  }
  __syncthreads();
  for (int i = strip; i < kSide; i += 8) {
    const int64_t c = first_column + i, r = first_row + lane;
    if (r < x.rows && c < x.columns) transposed[c * x.rows + r] = square[lane * (kSide + 1) + i];
  }
}

// Calls body(std::integral_constant<int, n>()) with packs of four elements where all rows allow it.
template <typename Body>
void with_fours(const Tensor& x, const Matrix& m, Body&& body) {
  const auto bytes = static_cast<uint64_t>(item_bytes(x.dtype()));
  if (address(x) % (4 * bytes) == 0 && m.stride % 4 == 0 && m.columns % 4 == 0)
    return body(std::integral_constant<int, 4>());
  body(std::integral_constant<int, 1>());
}
template <typename Body>
void with_format(DType codes, Body&& body) {
  if (codes == DType::f8_e4m3) return body(E4m3());
  body(E5m2());
}

constexpr size_t kFoldBytes = kWarpSize * sizeof(float);

void scale_columns(const Fp8ScaleArgs& args, const Matrix& x, Stream& stream) {
  if (x.columns == 0) return;
  const int64_t count = std::clamp<int64_t>(pieces(x.rows, kRowsOfStrip), 1, kMostPartsOfColumn);
  auto* const parts =
      static_cast<float*>(workspace(stream, static_cast<size_t>(count * x.columns) * sizeof(float)));
  const unsigned wide = blocks(pieces(x.columns, kThreads));
  launch("fp8_scale", fp8_columns_kernel, {dim3(wide, static_cast<unsigned>(count)), kThreads, 0},
         native(stream), x, parts);
  launch("fp8_scale", fp8_column_scales_kernel, {wide, kThreads, 0}, native(stream), parts, count, x.columns,
         top_of(args.codes), args.scale.data<float>());
}

}  // namespace

void fp8_scale(const Fp8ScaleArgs& args, Stream& stream) {
  const Matrix x = matrix_of(args.x);
  const float top = top_of(args.codes);
  if (args.of == Fp8Scale::column) return scale_columns(args, x, stream);
  with_fours(args.x, x, [&](auto n) {
    if (args.of == Fp8Scale::row) {
      if (x.rows == 0) return;
      launch("fp8_scale", fp8_rows_kernel<n(), true>, {blocks(x.rows), kThreads, kFoldBytes}, native(stream),
             x, top, args.scale.data<float>());
      return;
    }
    const int64_t count = std::clamp<int64_t>(x.rows, 1, kMostParts);
    auto* const parts = static_cast<float*>(workspace(stream, kMostParts * sizeof(float)));
    launch("fp8_scale", fp8_rows_kernel<n(), false>, {blocks(count), kThreads, kFoldBytes}, native(stream), x,
           top, parts);
    const History history = {args.history ? args.history.data<float>() : nullptr,
                             args.history ? static_cast<int>(args.history.count()) : 0, args.now,
                             args.record ? 1 : 0};
    launch("fp8_scale", fp8_tensor_scale_kernel, {1, static_cast<int>(kMostParts), kFoldBytes},
           native(stream), parts, static_cast<int>(count), history, top, args.scale.data<float>());
  });
}

void fp8_codes(const Fp8CodesArgs& args, Stream& stream) {
  if (args.x.count() == 0 || (!args.codes && !args.transposed)) return;
  const Matrix x = matrix_of(args.x);
  const Scales scale = {args.scale.data<float>(), args.of};
  with_format((args.codes ? args.codes : args.transposed).dtype(), [&](auto format) {
    using Format = decltype(format);
    if (args.codes)
      with_fours(args.x, x, [&](auto n) {
        const RowGrid grid = row_grid(x.columns / n());
        launch("fp8_codes", fp8_codes_kernel<Format, n()>, row_launch(grid, x.rows), native(stream), x, scale,
               args.codes.data<uint8_t>(), grid);
      });
    if (args.transposed) {
      const int64_t squares = pieces(x.columns, kSide);
      launch("fp8_codes", fp8_transposed_kernel<Format>,
             {blocks(squares * pieces(x.rows, kSide)), kSideThreads, kSide * (kSide + 1)}, native(stream), x,
             scale, args.transposed.data<uint8_t>(), static_cast<unsigned>(squares));
    }
  });
}

}  // namespace gangway::cuda

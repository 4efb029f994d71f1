// Products in FP8 on a CPU are a numeric reference for GPUs, not a speed-up: codes are decoded and multiplied
// in f32, or in f64 for f64.
#include "ops/cpu/fp8.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/fp8.h"
#include "ops/cpu/operations.h"

namespace gangway::cpu {
namespace {

constexpr size_t kGrain = 4096;  // the fewest elements that are worth a thread
constexpr float kLeastMagnitude = 1e-12f;

float value(double x) { return static_cast<float>(x); }
float value(float x) { return x; }
float value(bf16_t x) { return to_f32(x); }
float value(f16_t x) { return to_f32(x); }

// Calls body(pointer to the elements of x).
template <typename Body>
void with_elements(const Tensor& x, const Body& body) {
  switch (x.dtype()) {
    case DType::f64: return body(x.data<const double>());
    case DType::bf16: return body(x.data<const bf16_t>());
    case DType::f16: return body(x.data<const f16_t>());
    default: return body(x.data<const float>());
  }
}
template <typename Body>
void with_format(DType codes, const Body& body) {
  if (codes == DType::f8_e4m3) return body(E4m3());
  body(E5m2());
}

int64_t row_stride(const Tensor& t) { return t.dim(0) > 1 ? t.stride(0) : t.dim(1); }

float larger(float most, float x) {
  const float magnitude = std::fabs(x);
  return magnitude > most ? magnitude : most;  // false for a NaN
}

float scale_of(float most, DType codes) {
  return std::max(most, kLeastMagnitude) / (codes == DType::f8_e4m3 ? E4m3::kTop : E5m2::kTop);
}

// The largest magnitude of x, or where the history says it is.
float known_most(const Fp8ScaleArgs& args, float most) {
  if (!args.history || !std::isfinite(most)) return most;
  auto* const history = args.history.data<float>();
  float past = 0;
  for (int64_t i = 0; i < args.history.count(); ++i)
    if (i != args.now) past = std::max(past, history[i]);
  if (args.record) history[args.now] = std::max(history[args.now], most);
  return past > 0 ? past : most;
}

template <typename T>
void scale_columns(Context& context, const Fp8ScaleArgs& args, const T* x) {
  const int64_t rows = args.x.dim(0), stride = row_stride(args.x);
  auto* const scale = args.scale.data<float>();
  over_rows(context, args.x.dim(1), rows, kGrain, [&](int, int64_t first, int64_t last) {
    std::fill(scale + first, scale + last, 0.0f);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = first; c < last; ++c) scale[c] = larger(scale[c], value(x[r * stride + c]));
    for (int64_t c = first; c < last; ++c) scale[c] = scale_of(scale[c], args.codes);
  });
}

template <typename T>
void scale_rows(Context& context, const Fp8ScaleArgs& args, const T* x) {
  const int64_t columns = args.x.dim(1), stride = row_stride(args.x);
  const bool each = args.of == Fp8Scale::row;
  auto* const scale = args.scale.data<float>();
  std::vector<float> most(static_cast<size_t>(context.pool.threads()), 0.0f);
  over_rows(context, args.x.dim(0), columns, kGrain, [&](int thread, int64_t first, int64_t last) {
    float all = most[static_cast<size_t>(thread)];
    for (int64_t r = first; r < last; ++r) {
      if (each) all = 0;
      for (int64_t c = 0; c < columns; ++c) all = larger(all, value(x[r * stride + c]));
      if (each) scale[r] = scale_of(all, args.codes);
    }
    most[static_cast<size_t>(thread)] = all;
  });
  if (!each) scale[0] = scale_of(known_most(args, *std::max_element(most.begin(), most.end())), args.codes);
}

template <typename Format, typename T>
void encode(Context& context, const Fp8CodesArgs& args, const T* x) {
  const int64_t rows = args.x.dim(0), columns = args.x.dim(1), stride = row_stride(args.x);
  const auto* const scale = args.scale.data<const float>();
  auto* const codes = args.codes ? args.codes.data<uint8_t>() : nullptr;
  auto* const transposed = args.transposed ? args.transposed.data<uint8_t>() : nullptr;
  over_rows(context, rows, columns, kGrain, [&](int, int64_t first, int64_t last) {
    for (int64_t r = first; r < last; ++r)
      for (int64_t c = 0; c < columns; ++c) {
        const int64_t at = args.of == Fp8Scale::tensor ? 0 : args.of == Fp8Scale::row ? r : c;
        const uint8_t code = to_fp8<Format>(value(x[r * stride + c]) / scale[at]);
        if (codes != nullptr) codes[r * columns + c] = code;
        if (transposed != nullptr) transposed[c * rows + r] = code;
      }
  });
}

template <typename Format, typename Wide>
void decode(Context& context, const Tensor& codes, const Tensor& scale, Wide* to) {
  const int64_t columns = codes.dim(1);
  const auto* const from = codes.data<const uint8_t>();
  const auto* const scales = scale.data<const float>();
  const bool one = scale.count() == 1;
  over_rows(context, codes.dim(0), columns, kGrain, [&](int, int64_t first, int64_t last) {
    for (int64_t r = first; r < last; ++r)
      for (int64_t i = r * columns; i < (r + 1) * columns; ++i)
        to[i] = static_cast<Wide>(from_fp8<Format>(from[i])) * static_cast<Wide>(scales[one ? 0 : r]);
  });
}

void decode(Context& context, const Tensor& codes, const Tensor& scale, const Tensor& to) {
  with_format(codes.dtype(), [&](auto format) {
    using Format = decltype(format);
    if (to.dtype() == DType::f64) return decode<Format>(context, codes, scale, to.data<double>());
    decode<Format>(context, codes, scale, to.data<float>());
  });
}

}  // namespace

void fp8_scale(Context& context, const Fp8ScaleArgs& args) {
  with_elements(args.x, [&](const auto* x) {
    args.of == Fp8Scale::column ? scale_columns(context, args, x) : scale_rows(context, args, x);
  });
}

void fp8_codes(Context& context, const Fp8CodesArgs& args) {
  if (!args.codes && !args.transposed) return;
  with_format((args.codes ? args.codes : args.transposed).dtype(), [&](auto format) {
    with_elements(args.x, [&](const auto* x) { encode<decltype(format)>(context, args, x); });
  });
}

void fp8_gemm(Context& context, const Fp8GemmArgs& args) {
  decode(context, args.a, args.a_scale, args.a_values);
  decode(context, args.b, args.b_scale, args.b_values);
  gemm(context, {.a = args.a_values,
                 .b = args.b_values,
                 .c = args.c,
                 .bias = {},
                 .transpose_b = true,
                 .accumulate = args.accumulate});
}

}  // namespace gangway::cpu

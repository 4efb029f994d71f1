#include "ops/simd_probe.h"

#include "ops/cpu/simd.h"

namespace gangway::cpu::GANGWAY_ISA_NAMESPACE {
namespace {

void probe_exp(const float* x, float* y, int64_t count) {
  for_lanes<float>(count, [&](int64_t i, auto n) GW_BODY { store(y + i, exp(load(x + i, n)), n); });
}
void probe_exp_flush(const float* x, float* y, int64_t count) {
  for_lanes<float>(count, [&](int64_t i, auto n) GW_BODY { store(y + i, exp_flush(load(x + i, n)), n); });
}
void probe_exp_f64(const double* x, double* y, int64_t count) {
  for_lanes<double>(count, [&](int64_t i, auto n) GW_BODY { store(y + i, exp(load(x + i, n)), n); });
}
template <typename X, typename Y>
void probe_convert(const X* x, Y* y, int64_t count) {
  for_lanes<float>(count, [&](int64_t i, auto n) GW_BODY { store(y + i, load(x + i, n), n); });
}
float probe_scalar_f16(f16_t x) { return to_scalar(x); }
void probe_round_trip(const float* x, float* y, int64_t count) {
  for (int64_t i = 0; i < count; i += kLanes32) store(y + i, narrow_f32(widen_f64(load(x + i))));
}
float probe_sum(const float* x) { return sum(load(x)); }
float probe_max(const float* x) { return max_lane(load(x)); }

template <typename T>
void probe_transpose(T* square) {
  Vec<T> rows[Compute<T>::kLanes];
  for (int i = 0; i < Compute<T>::kLanes; ++i) rows[i] = load(square + i * Compute<T>::kLanes);
  transpose(rows);
  for (int i = 0; i < Compute<T>::kLanes; ++i) store(square + i * Compute<T>::kLanes, rows[i]);
}

}  // namespace

extern const SimdProbe simd_probe = {.bytes = kBytes,
                                     .exp = probe_exp,
                                     .exp_flush = probe_exp_flush,
                                     .exp_f64 = probe_exp_f64,
                                     .narrow = probe_convert<float, bf16_t>,
                                     .widen = probe_convert<bf16_t, float>,
                                     .narrow_f16 = probe_convert<float, f16_t>,
                                     .widen_f16 = probe_convert<f16_t, float>,
                                     .scalar_f16 = probe_scalar_f16,
                                     .round_trip_f64 = probe_round_trip,
                                     .sum = probe_sum,
                                     .max_lane = probe_max,
                                     .transpose = probe_transpose<float>,
                                     .transpose_f64 = probe_transpose<double>};

}  // namespace gangway::cpu::GANGWAY_ISA_NAMESPACE

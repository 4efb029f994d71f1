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
void probe_narrow(const float* x, bf16_t* y, int64_t count) {
  for_lanes<float>(count, [&](int64_t i, auto n) GW_BODY { store(y + i, load(x + i, n), n); });
}
void probe_widen(const bf16_t* x, float* y, int64_t count) {
  for_lanes<float>(count, [&](int64_t i, auto n) GW_BODY { store(y + i, load(x + i, n), n); });
}
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

extern const SimdProbe simd_probe = {
    kBytes,           probe_exp, probe_exp_flush, probe_exp_f64,          probe_narrow,           probe_widen,
    probe_round_trip, probe_sum, probe_max,       probe_transpose<float>, probe_transpose<double>};

}  // namespace gangway::cpu::GANGWAY_ISA_NAMESPACE

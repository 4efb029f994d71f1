// Replaces impl/ops/cuda/ptx.h for host compilers, with the same functions and contracts. Lanes hold
// registers as the PTX ISA states; products and sums are f32. It is stricter than a device: the target of
// cp_async is NaN until cp_async_wait.
#pragma once

#include <cstdint>

#include "ops/cuda/numbers.h"

namespace gangway::cuda {

template <typename T>
uint32_t pack_pair(float first, float second) {
  return narrow<T>(first).bits | static_cast<uint32_t>(narrow<T>(second).bits) << 16;
}

inline unsigned hidden(unsigned number) { return number; }

namespace emulated {

template <typename T>
float half_of(uint32_t pair, int upper) {
  return widen(T{static_cast<uint16_t>(upper != 0 ? pair >> 16 : pair)});
}
inline int lane_in_warp() { return static_cast<int>(::gpu_emulation::lane().in_warp); }

}  // namespace emulated

// Lanes may read each other's registers between the two exchanges.
template <typename T>
void mma_m16n8k16(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                  const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  struct Registers {
    float a[4][2], b[2][2];
  } mine;
  for (int half = 0; half < 2; ++half) {
    for (int i = 0; i < 4; ++i) mine.a[i][half] = emulated::half_of<T>(a[i], half);
    mine.b[0][half] = emulated::half_of<T>(b0, half);
    mine.b[1][half] = emulated::half_of<T>(b1, half);
  }
  const uint64_t* const all = ::gpu_emulation::warp_exchange(kWholeWarp, reinterpret_cast<uint64_t>(&mine),
                                                             {"mma", file, line, false, true});
  const auto of = [&](int lane) -> const Registers& {
    return *reinterpret_cast<const Registers*>(all[lane]);
  };
  const int lane = emulated::lane_in_warp(), row = lane / 4, column = lane % 4 * 2;
  for (int k = 0; k < 16; ++k) {
    const int pair = k % 8 / 2, half = k % 2, upper = k / 8;
    const Registers& a_lane = of(row * 4 + pair);
    for (int i = 0; i < 4; ++i)
      sum[i] += a_lane.a[i / 2 + 2 * upper][half] * of((column + i % 2) * 4 + pair).b[upper][half];
  }
  ::gpu_emulation::warp_exchange(kWholeWarp, 0, {"the end of mma", file, line});
}

template <bool transposed>
void ldmatrix_x4(uint32_t (&to)[4], const void* row, const char* file = __builtin_FILE(),
                 int line = __builtin_LINE()) {
  const ::gpu_emulation::Site site = {"ldmatrix", file, line, false, true};
  ::gpu_emulation::require_aligned(row, 16, site);
  const uint64_t* const rows =
      ::gpu_emulation::warp_exchange(kWholeWarp, reinterpret_cast<uint64_t>(row), site);
  const int first = emulated::lane_in_warp() / 4, second = emulated::lane_in_warp() % 4 * 2;
  for (int m = 0; m < 4; ++m) {
    const auto at = [&](int r, int c) -> uint32_t {
      return reinterpret_cast<const uint16_t*>(rows[8 * m + r])[c];
    };
    to[m] = transposed ? at(second, first) | at(second + 1, first) << 16
                       : at(first, second) | at(first, second + 1) << 16;
  }
}

template <int bytes>
void cp_async(void* to, const void* from, bool exists, const char* file = __builtin_FILE(),
              int line = __builtin_LINE()) {
  static_assert(bytes == 4 || bytes == 16);
  const ::gpu_emulation::Site site = {"cp.async", file, line};
  ::gpu_emulation::require_aligned(to, bytes, site);
  ::gpu_emulation::require_aligned(from, bytes, site);
  Pack<uint32_t, bytes / 4> lost;
  for (uint32_t& word : lost.at) word = ~0u;
  store(static_cast<uint32_t*>(to), lost);
  ::gpu_emulation::copies().push_back({to, exists ? from : nullptr, bytes});
}
inline void cp_async_wait() {
  const auto finish = [](const ::gpu_emulation::Copy& copy, auto words) {
    Pack<uint32_t, words()> all{};
    if (copy.from != nullptr) all = load<words()>(static_cast<const uint32_t*>(copy.from));
    store(static_cast<uint32_t*>(copy.to), all);
  };
  for (const ::gpu_emulation::Copy& copy : ::gpu_emulation::copies())
    if (copy.bytes == 16)
      finish(copy, std::integral_constant<int, 4>());
    else
      finish(copy, std::integral_constant<int, 1>());
  ::gpu_emulation::copies().clear();
}

inline float exp2_approximate(float x) { return exp2f(x); }
inline float reciprocal_approximate(float x) { return 1.0f / x; }

}  // namespace gangway::cuda

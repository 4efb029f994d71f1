#include <cmath>

#include "ops/codes.h"
#include "ops/cuda/families.h"
#include "ops/cuda/random_rounding.h"
#include "ops/cuda/reduce.h"

// A warp has a block of codes, two elements for each lane. The formulas are those of ops.h.

namespace gangway::cuda {
namespace {

constexpr int kThreads = 256, kCodes = 256;
constexpr int kEach = static_cast<int>(kCodeBlock) / kWarpSize;

struct Average {
  uint8_t* codes;
  float* scales;
};

struct AdamW8bit {
  Array p, g, copy;
  Average m, v;
  int64_t columns, row_blocks, block_count;
  double g_factor, beta1, beta2, rate, v_factor, eps, keep;
  RandomRounding rounding;
  float m_values[kCodes], v_values[kCodes];  // of the codes, ascending
};

// The number of limits below x; a limit lies in the middle of two values.
__device__ inline uint8_t code_of(const float* values, float x) {
  int at = 0;
  for (int half = kCodes / 2; half > 0; half /= 2)
    at += x > (values[at + half - 1] + values[at + half]) / 2 ? half : 0;
  return static_cast<uint8_t>(at);
}

// As random_code of the CPU's kernels.
__device__ inline uint8_t random_code(const float* values, float x, uint32_t random) {
  const int nearest = code_of(values, x), low = nearest > 0 && x < values[nearest] ? nearest - 1 : nearest;
  if (low == kCodes - 1 || values[low] == 0 || values[low + 1] == 0) return static_cast<uint8_t>(nearest);
  const float gap = values[low + 1] - values[low], above = x - values[low];
  return static_cast<uint8_t>(above * 65536.0f > static_cast<float>(random) * gap ? low + 1 : low);
}

// All lanes of a warp call it.
template <typename S>
__device__ inline void encode(const S* values_of_lane, const Average& to, const float* table, int64_t block,
                              int64_t at, int64_t n, int lane, const uint32_t* words, uint32_t shift) {
  S most = 0;
  for (int e = 0; e < kEach; ++e) {
    const S size = lane + e * kWarpSize < n ? fabs(values_of_lane[e]) : S(0);
    most = Largest()(size, most);
  }
  const float scale = static_cast<float>(warp_fold(most, Largest()));
  if (lane == 0) to.scales[block] = scale;
  const S factor = scale == 0 ? S(0) : S(1) / static_cast<S>(scale);
  for (int e = 0; e < kEach; ++e)
    if (const int i = lane + e * kWarpSize; i < n)
      to.codes[at + i] =
          random_code(table, static_cast<float>(values_of_lane[e] * factor), words[e] >> shift & 0xffffu);
}

template <typename S>
__global__ void adamw8bit_kernel(AdamW8bit a) {
  float* const m_table = block_memory<float>();
  float* const v_table = m_table + kCodes;
  for (int i = static_cast<int>(threadIdx.x); i < kCodes; i += static_cast<int>(blockDim.x)) {
    m_table[i] = a.m_values[i];
    v_table[i] = a.v_values[i];
  }
  __syncthreads();
  const S g_factor = static_cast<S>(a.g_factor), beta1 = static_cast<S>(a.beta1),
          beta2 = static_cast<S>(a.beta2);
  const S rest1 = static_cast<S>(1 - a.beta1), rest2 = static_cast<S>(1 - a.beta2),
          rate = static_cast<S>(a.rate);
  const S v_factor = static_cast<S>(a.v_factor), eps = static_cast<S>(a.eps), keep = static_cast<S>(a.keep);
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize,
            warps = static_cast<int>(blockDim.x) / kWarpSize;
  const int64_t first =
      static_cast<int64_t>(blockIdx.x) * warps + static_cast<int64_t>(threadIdx.x) / kWarpSize;
  for (int64_t block = first; block < a.block_count; block += static_cast<int64_t>(gridDim.x) * warps) {
    const int64_t column = block % a.row_blocks * kCodeBlock, rest = a.columns - column;
    const int64_t at = block / a.row_blocks * a.columns + column, n = rest < kCodeBlock ? rest : kCodeBlock;
    const S m_scale = static_cast<S>(a.m.scales[block]), v_scale = static_cast<S>(a.v.scales[block]);
    S m[kEach] = {}, v[kEach] = {};
    uint32_t words[kEach] = {};
    for (int e = 0; e < kEach; ++e) {
      const int64_t i = lane + e * kWarpSize;
      if (i >= n) continue;
      words[e] = random_words<1>(a.rounding, at + i).at[0];
      const S gradient = read<1, S>(a.g, at + i).at[0] * g_factor;
      Pack<S, 1> p = read<1, S>(a.p, at + i);
      m[e] = static_cast<S>(m_table[a.m.codes[at + i]]) * m_scale * beta1 + gradient * rest1;
      v[e] = static_cast<S>(v_table[a.v.codes[at + i]]) * v_scale * beta2 + gradient * gradient * rest2;
      p.at[0] = p.at[0] * keep - m[e] * rate / (sqrt(v[e]) * v_factor + eps);
      write<1>(a.p, at + i, p);
      if (a.copy.data != nullptr) write<1>(a.copy, at + i, p);
    }
    __syncwarp();  // every lane has read the old scales, which lane 0 overwrites
    encode(m, a.m, m_table, block, at, n, lane, words, kRoundsM);
    encode(v, a.v, v_table, block, at, n, lane, words, kRoundsV);
  }
}

}  // namespace

void adamw8bit(const AdamW8bitArgs& args, Stream& stream) {
  if (args.p.count() == 0) return;
  const OptimizerControl& control = args.control;
  const double lr = control.lr * args.lr_scale, step = static_cast<double>(control.step);
  AdamW8bit a = {array_of(args.p),
                 array_of(args.g),
                 array_of(args.copy),
                 {args.m.data<uint8_t>(), args.m_scale.data<float>()},
                 {args.v.data<uint8_t>(), args.v_scale.data<float>()},
                 args.columns,
                 code_blocks(args.columns),
                 args.m_scale.count(),
                 control.scale * control.clip,
                 args.beta1,
                 args.beta2,
                 lr / (1 - std::pow(args.beta1, step)),
                 1 / std::sqrt(1 - std::pow(args.beta2, step)),
                 args.eps,
                 1 - lr * args.weight_decay,
                 args.rounding,
                 {},
                 {}};
  std::copy_n(signed_codes().values.begin(), kCodes, a.m_values);
  std::copy_n(unsigned_codes().values.begin(), kCodes, a.v_values);
  const Grid grid = {blocks(pieces(a.block_count, kThreads / kWarpSize)), kThreads,
                     2 * kCodes * sizeof(float)};
  if (args.p.dtype() == DType::f64)
    launch("adamw8bit", adamw8bit_kernel<double>, grid, native(stream), a);
  else
    launch("adamw8bit", adamw8bit_kernel<float>, grid, native(stream), a);
}

}  // namespace gangway::cuda

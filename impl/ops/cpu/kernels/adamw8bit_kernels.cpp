#include "ops/cpu/kernels/adamw8bit_kernels.h"

#include "ops/codes.h"
#include "ops/cpu/kernels/random_rounding.h"

namespace gangway::cpu::GANGWAY_ISA_NAMESPACE {
namespace {

GW_SIMD float root(float x) { return __builtin_sqrtf(x); }
GW_SIMD double root(double x) { return __builtin_sqrt(x); }

// The number of limits below x, by halving.
GW_SIMD uint8_t code_of(const float* limits, float x) {
  int at = 0;
  for (int half = 128; half > 0; half /= 2) at += x > limits[at + half - 1] ? half : 0;
  return static_cast<uint8_t>(at);
}

// Of the codes next to x the upper one with the probability of what lies above the lower one; `random` is
// below 2^16. Next to the value 0 it is the nearest: an average of squares must not become 0 by chance,
// because a step divides by its root.
GW_SIMD uint8_t random_code(const CodedAverage& table, float x, uint32_t random) {
  const uint8_t nearest = code_of(table.limits, x);
  const int low = nearest > 0 && x < table.values[nearest] ? nearest - 1 : nearest;
  if (low == 255 || table.values[low] == 0 || table.values[low + 1] == 0) return nearest;
  const float gap = table.values[low + 1] - table.values[low], above = x - table.values[low];
  return static_cast<uint8_t>(above * 65536.0f > static_cast<float>(random) * gap ? low + 1 : low);
}

template <typename S>
GW_SIMD void decode(const CodedAverage& from, int64_t block, int64_t at, int64_t n, S* to) {
  const S scale = static_cast<S>(from.scales[block]);
  for (int64_t i = 0; i < n; ++i) to[i] = static_cast<S>(from.values[from.codes[at + i]]) * scale;
}

// A NaN among the values becomes the scale.
template <typename S>
GW_SIMD void encode(const S* from, const CodedAverage& to, int64_t block, int64_t at, int64_t n,
                    const uint32_t* words, uint32_t shift) {
  S most = 0;
  for (int64_t i = 0; i < n; ++i) {
    const S size = from[i] < 0 ? -from[i] : from[i];
    if (!(size <= most) && most == most) most = size;
  }
  const float scale = static_cast<float>(most);
  to.scales[block] = scale;
  const S factor = scale == 0 ? S{0} : S{1} / static_cast<S>(scale);
  for (int64_t i = 0; i < n; ++i)
    to.codes[at + i] = random_code(to, static_cast<float>(from[i] * factor), words[i] >> shift & 0xffffu);
}

template <typename S>
void step_as(const AdamW8bitStep& step, int64_t first, int64_t last) {
  const S g_factor = static_cast<S>(step.g_factor), beta1 = static_cast<S>(step.beta1);
  const S beta2 = static_cast<S>(step.beta2), rest1 = static_cast<S>(1 - step.beta1);
  const S rest2 = static_cast<S>(1 - step.beta2), rate = static_cast<S>(step.rate);
  const S v_factor = static_cast<S>(step.v_factor), eps = static_cast<S>(step.eps),
          keep = static_cast<S>(step.keep);
  S g_block[kCodeBlock], m[kCodeBlock], v[kCodeBlock];
  uint32_t words[kCodeBlock];
  for (int64_t block = first; block < last; ++block) {
    const int64_t column = block % step.blocks * kCodeBlock, rest = step.columns - column;
    const int64_t at = block / step.blocks * step.columns + column, n = rest < kCodeBlock ? rest : kCodeBlock;
    const S* g = read_block<S>(step.g.dtype, step.g.data, at, n, g_block);
    S* p = static_cast<S*>(step.p.data) + at;
    decode(step.m, block, at, n, m);
    decode(step.v, block, at, n, v);
    for (int64_t i = 0; i < n; ++i) {
      const S gradient = g[i] * g_factor;
      m[i] = m[i] * beta1 + gradient * rest1;
      v[i] = v[i] * beta2 + gradient * gradient * rest2;
      p[i] = p[i] * keep - m[i] * rate / (root(v[i]) * v_factor + eps);
    }
    random_words(step.rounding, at, n, words);
    encode(m, step.m, block, at, n, words, kRoundsM);
    encode(v, step.v, block, at, n, words, kRoundsV);
    if (step.copy.data != nullptr) write_block<S>(step.copy.dtype, step.copy.data, at, n, p);
  }
}

void step_blocks(const AdamW8bitStep& step, int64_t first, int64_t last) {
  if (step.p.dtype == DType::f64) {
    step_as<double>(step, first, last);
  } else {
    step_as<float>(step, first, last);
  }
}

}  // namespace

extern const AdamW8bitKernels adamw8bit_kernels = {step_blocks};

}  // namespace gangway::cpu::GANGWAY_ISA_NAMESPACE

// The arguments of operations as numbers, by which the device's segments are told apart (device/cuda/segments.h): every address,
// shape, stride and number. A record that gets a further member does not compile until it is named here.
//
// Thread rule: none; values.
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>

#include "device/cuda/segments.h"
#include "ops/ops.h"

namespace gangway::cuda {

template <std::integral Number>
void append(Words& words, Number number) {
  words.push_back(static_cast<uint64_t>(number));
}
inline void append(Words& words, double number) { words.push_back(std::bit_cast<uint64_t>(number)); }
template <typename T>
void append(Words& words, T* address) {
  words.push_back(reinterpret_cast<uintptr_t>(address));
}
inline void append(Words& words, const Tensor& t) {
  if (!t) return words.push_back(0);
  words.push_back(1 + static_cast<uint64_t>(t.dtype()) * 256 + static_cast<uint64_t>(t.rank()) * 65536);
  append(words, t.raw());
  for (int i = 0; i < t.rank(); ++i) {
    append(words, t.dim(i));
    append(words, t.stride(i));
  }
}

#define GANGWAY_WORDS(Args, ...)                                                     \
  inline void append(Words& words, const Args& args) {                               \
    const auto& [__VA_ARGS__] = args;                                                \
    const auto all = [&](const auto&... members) { (append(words, members), ...); }; \
    all(__VA_ARGS__);                                                                \
  }
GANGWAY_WORDS(GemmArgs, a, b, c, bias, transpose_a, transpose_b, accumulate)
GANGWAY_WORDS(RmsNormArgs, x, residual, weight, y, sum, rstd, eps)
GANGWAY_WORDS(RmsNormBackwardArgs, dy, x, weight, rstd, dsum, dx, dweight, y)
GANGWAY_WORDS(RopeArgs, x, y, cos, sin, positions, heads, sequence, inverse)
GANGWAY_WORDS(SwigluArgs, gate, up, y)
GANGWAY_WORDS(SwigluBackwardArgs, gate, up, dy, dgate, dup, y)
GANGWAY_WORDS(AttentionArgs, q, k, v, out, lse, scale, causal, q_offset, k_offset)
GANGWAY_WORDS(AttentionMergeArgs, out, lse, part, part_lse)
GANGWAY_WORDS(AttentionBackwardArgs, q, k, v, out, lse, dout, dq, dk, dv, scale, causal, q_offset, k_offset,
              accumulate)
GANGWAY_WORDS(EmbeddingArgs, table, ids, y, first_row, rows)
GANGWAY_WORDS(EmbeddingBackwardArgs, ids, dy, dtable, first_row)
GANGWAY_WORDS(LossPartArgs, logits, labels, statistics, first_id)
GANGWAY_WORDS(DivideByNormArgs, y, power, least)
#undef GANGWAY_WORDS

}  // namespace gangway::cuda

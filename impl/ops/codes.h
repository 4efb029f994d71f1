// The 8-bit codes of averages: dynamic quantisation in blocks, as in bitsandbytes (Dettmers and others,
// "8-bit optimizers via block-wise quantization", 2022).
//
// A code is the index of a value in an ascending table. The tables have 0, 1, and values of seven decades:
//   10^(d - 6) (0.1 + 0.9 (k + 1/2) / n),  d from 0 to 6, k from 0 to n - 1
// For numbers of either sign n is 2^d and every value has its negative (-1 is not in the table); for numbers
// that are not negative n is 2^(d + 1). A block's numbers are divided by the greatest magnitude, and each
// becomes the code of the nearest value, the lower of two that are equally near.
//
// Thread rule: constants.
#pragma once

#include <array>
#include <cstdint>

namespace gangway {

constexpr int64_t kCodeBlock = 64;  // elements of a row that share a scale
constexpr int64_t code_blocks(int64_t columns) { return (columns + kCodeBlock - 1) / kCodeBlock; }

struct CodeTable {
  std::array<float, 256> values;
  std::array<float, 255> limits;  // code c stands for numbers over limits[c - 1], up to limits[c]
};
const CodeTable& signed_codes();
const CodeTable& unsigned_codes();

}  // namespace gangway

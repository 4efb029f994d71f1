// NumPy's .npy files with one dimension of integers.
//
// Thread rule: pure functions.
#pragma once

#include "data/token_file.h"

namespace gangway::data {

struct NpyHeader {
  TokenType type = TokenType::u16;
  uint64_t first_byte = 0, count = 0;
};
// CORRUPT: not such a file. NOT_SUPPORTED: other elements than little-endian integers, or not one dimension.
NpyHeader read_npy_header(OpenFiles& files, const FileFacts& file);

}  // namespace gangway::data

// The place in a training as text: a JSON object with the rows and batches taken, and the facts on which the
// order of the rows depends: names and sizes of the files, a hash of
// some of their bytes, weights, sequence, packing, seed.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "data/row_stream.h"

namespace gangway::data {

struct Position {
  int64_t rows = 0, batches = 0;
};

std::string write_position(const RowStream& stream, const Position& position);
// INVALID_ARGUMENT: the text is no position. MISMATCH: a fact is not that of `stream`; the text names the
// first that differs, with both values.
Position read_position(const RowStream& stream, std::string_view text, bool ignore_differences);

}  // namespace gangway::data

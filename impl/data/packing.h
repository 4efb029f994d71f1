// Packs whole documents into rows.
//
// Thread rule: pure functions of values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gangway::data {

// A whole document, or a part of a document that is longer than a row.
struct Piece {
  uint32_t first = 0;  // its first token, counted from the region's
  uint32_t count = 0;
  bool goes_on = false;  // the token after the piece belongs to the same document, and is its last label
};

struct PackedRegion {
  uint64_t begin = 0;            // the region's first token
  std::vector<Piece> pieces;     // row by row; inside a row in the file's order
  std::vector<uint32_t> bounds;  // row r has the pieces [bounds[r], bounds[r + 1])
  size_t rows() const { return bounds.size() - 1; }
};

// Packs the tokens [begin, end) into rows of `sequence` tokens. `starts` are the beginnings of documents in
// [begin, end), in ascending order; the first token begins a piece in any case. A document that is longer
// than a row is cut from its beginning on. Each piece goes, the longest first, into the row with the least
// room that it still fits into (best fit decreasing). Rows are in the order of their first tokens.
PackedRegion pack(uint64_t begin, uint64_t end, const std::vector<uint64_t>& starts, int64_t sequence);

}  // namespace gangway::data

#include "data/packing.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

namespace gangway::data {
namespace {

std::vector<Piece> cut(uint64_t begin, uint64_t end, const std::vector<uint64_t>& starts, uint64_t sequence) {
  std::vector<Piece> pieces;
  size_t next = 0;
  for (uint64_t at = begin; at < end;) {
    while (next < starts.size() && starts[next] <= at) ++next;
    const uint64_t document_end = next < starts.size() ? starts[next] : end;
    const uint64_t piece_end = std::min(document_end, at + sequence);
    pieces.push_back(
        {static_cast<uint32_t>(at - begin), static_cast<uint32_t>(piece_end - at), piece_end < document_end});
    at = piece_end;
  }
  return pieces;
}

// Returns the numbers of the pieces of each row.
std::vector<std::vector<uint32_t>> fit(const std::vector<Piece>& pieces, uint64_t sequence) {
  std::vector<uint32_t> order(pieces.size());
  std::iota(order.begin(), order.end(), uint32_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return pieces[a].count > pieces[b].count; });
  std::vector<std::vector<uint32_t>> rows;
  std::set<std::pair<uint64_t, size_t>> with_room;  // the room of each row that has some, and its number
  for (const uint32_t piece : order) {
    const uint64_t count = pieces[piece].count;
    const auto best = with_room.lower_bound({count, 0});
    size_t row = rows.size();
    uint64_t room = sequence;
    if (best == with_room.end()) {
      rows.emplace_back();
    } else {
      std::tie(room, row) = *best;
      with_room.erase(best);
    }
    rows[row].push_back(piece);
    if (room > count) with_room.emplace(room - count, row);
  }
  for (std::vector<uint32_t>& row : rows) std::sort(row.begin(), row.end());
  std::sort(rows.begin(), rows.end());
  return rows;
}

}  // namespace

PackedRegion pack(uint64_t begin, uint64_t end, const std::vector<uint64_t>& starts, int64_t sequence) {
  const std::vector<Piece> pieces = cut(begin, end, starts, static_cast<uint64_t>(sequence));
  PackedRegion region;
  region.begin = begin;
  region.pieces.reserve(pieces.size());
  region.bounds.push_back(0);
  for (const std::vector<uint32_t>& row : fit(pieces, static_cast<uint64_t>(sequence))) {
    for (const uint32_t piece : row) region.pieces.push_back(pieces[piece]);
    region.bounds.push_back(static_cast<uint32_t>(region.pieces.size()));
  }
  return region;
}

}  // namespace gangway::data

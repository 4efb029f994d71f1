// What a call means for its peers: who reads whose input, which piece of it. Pure functions.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "gang/host/core.h"

namespace gangway::host {

// The other members whose input a rank needs, and those that read its own.
enum class Peers : uint8_t { none, root, all };
Peers producers(const Op& op, int rank, bool small);
Peers consumers(const Op& op, int rank);

inline bool reduces(CollectiveOp op) { return op == CollectiveOp::all_reduce || op == CollectiveOp::reduce; }
// Every reader wants another part of the input.
inline bool splits(CollectiveOp op) {
  return op == CollectiveOp::scatter || op == CollectiveOp::all_to_all || op == CollectiveOp::reduce_scatter;
}
// Does `rank` get the result of a reduction?
inline bool receives(const Op& op, int rank) { return op.c.op != CollectiveOp::reduce || op.c.peer == rank; }

// Elements of the j-th part of a packed array.
struct Part {
  size_t first = 0, count = 0;
};
Part part_of(const Op& op, int j);                           // by counts[0, size)
Part received_part(const Op& op, int j, int size);           // all_to_all: by counts[size, 2 size)
Part even_part(size_t count, size_t item, int j, int size);  // a reduction's own cut, in whole cache lines

// Bytes of each input that one step reads where they lie.
inline size_t move_chunk(int size) {
  return std::max(kChunk, kMove / static_cast<size_t>(size) / kLine * kLine);
}

void prepare(Op& op, const Collective& c, int rank, int size);  // copies the counts, sizes
uint64_t fingerprint(const Op& op, uint64_t history, int size);
std::string ranks_text(const std::vector<int>& ranks);  // "rank 2", "ranks 0, 1, 3", "no rank"

}  // namespace gangway::host

// How ranks share a whole sequence (context parallelism): the sequence is cut into 2 W equal chunks, and rank
// r of W holds chunk r and chunk 2W-1-r, one after the other (the "head and tail" order).
//
// Thread rule: values.
#pragma once

#include <array>
#include <cstdint>

namespace gangway {

// The part of one of `ranks` ranks. With one rank the part is the whole.
struct SequencePart {
  int rank = 0, ranks = 1;
};

// `count` consecutive tokens, which begin at `local` on their rank and at `position` in the whole sequence.
struct Chunk {
  int64_t local = 0, position = 0, count = 0;
};

// The two chunks of `rank`, which holds `tokens` tokens. `tokens` is even if there are several ranks.
inline std::array<Chunk, 2> chunks_of(int64_t tokens, int rank, int ranks) {
  const int64_t count = tokens / 2;
  return {Chunk{0, rank * count, count}, Chunk{count, (2 * ranks - 1 - rank) * count, tokens - count}};
}

}  // namespace gangway

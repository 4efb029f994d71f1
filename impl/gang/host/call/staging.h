// Staging: an input that peers cannot access is copied through a ring of kStages chunks in the arena. A
// second ring of the same length holds folded results. The calls of a lane use the rings one after another;
// each begins where the previous one ended.
//
// Progress is counted in rounds on the board: `filled` counts the chunks that their owner has written,
// `drained` those that a reader has read, and `collected` those whose folded results a reader has fetched.
//
// Thread rule: under the core's mutex.
#pragma once

#include "gang/host/call/algorithm.h"

namespace gangway::host {

// Allocates the rings when the lane has none yet, and publishes their offset in `place`.
void take_chunks(Call& call, std::atomic<uint64_t>& place);
void plan_fill(Call& call);  // computes the number of rounds of the input
// The offset of a round's chunk in its ring.
inline size_t stage_at(uint64_t first_stage, uint64_t round) {
  return (first_stage + round) % kStages * kChunk;
}
// Returns whether this call may use the rings. It has to wait until the calls before it have filled their
// chunks and the peers have read those.
bool own_chunks(Call& call);
bool can_fill(Call& call);
void fill(Call& call);  // fills the chunk of one round

}  // namespace gangway::host

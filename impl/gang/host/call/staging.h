// How an input that peers cannot reach travels: through a ring of kStages chunks in the arena, with as long a ring of folded
// results. A call that stages its input goes on in the ring where the one before it ended.
//
// Progress through the chunks is counted in rounds, on the board: `filled` counts chunks that their owner put there,
// `drained` those that a reader has read, `collected` those whose folded results a reader has fetched. The area goes
// from call to call in their order.
//
// Thread rule: under the core's mutex.
#pragma once

#include "gang/host/call/algorithm.h"

namespace gangway::host {

// Takes the area when the lane has none yet, and tells the peers where it is.
void take_chunks(Call& call, std::atomic<uint64_t>& place);
void plan_fill(Call& call);  // how many rounds the input takes
// From the start of a ring to the chunk of a round.
inline size_t stage_at(uint64_t first_stage, uint64_t round) {
  return (first_stage + round) % kStages * kChunk;
}
// Is the area this call's? It waits for the calls before it to fill theirs, and for the peers to read that.
bool own_chunks(Call& call);
bool can_fill(Call& call);
void fill(Call& call);  // one round

}  // namespace gangway::host

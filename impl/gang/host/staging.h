// The memory that a queue of calls has in the arena beside its slots: small payloads, tables of counts, and a ring of kStages
// chunks through which an input outside of the arena travels, with as long a ring of folded results. A call that stages its
// input goes on in the ring where the one before it ended.
//
// Progress through the chunks is counted in rounds, on the board: `filled` counts chunks that their owner put there,
// `drained` those that a reader has read, `collected` those whose folded results a reader has fetched. The area goes
// from call to call in their order.
//
// Thread rule: under the core's mutex.
#pragma once

#include "gang/host/team.h"

namespace gangway::host {

struct Call;

struct Staging {
  uint64_t chunks = 0;       // offset of kStages chunks, and of as many of results
  uint64_t small = 0;        // offset of kSmall bytes for each slot
  uint64_t tables = 0;       // offset of size + 1 words for each slot
  uint64_t taken_until = 0;  // peers may read chunks of calls before this one
  uint64_t next_stage = 0;   // where the next call begins
};

// How a staged input is cut into rounds.
enum class Cut : uint8_t {
  whole,      // chunk by chunk
  by_reader,  // each chunk holds a part for each reader
  but_own,    // chunk by chunk, without the part that this rank folds from the input itself
};

// Takes the area when the lane has none yet, and tells the peers where it is.
void take_chunks(Call& call, std::atomic<uint64_t>& told);
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

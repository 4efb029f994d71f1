// The memory that a queue of calls has in the arena beside its slots: small payloads, tables of counts, and kStages
// chunks through which an input outside of the arena travels, with as many chunks of folded results.
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
// Is the area this call's? It waits for the calls before it to fill theirs, and for the peers to read that.
bool own_chunks(Call& call);
bool can_fill(Call& call);
void fill(Call& call);  // one round

}  // namespace gangway::host

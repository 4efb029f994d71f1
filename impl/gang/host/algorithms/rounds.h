// Functions that the algorithms share: where the bytes of a round are, whether they have been written, and
// how a round ends.
//
// Thread rule: under the core's mutex; nothing here waits.
#pragma once

#include "gang/host/call/staging.h"

namespace gangway::host {

// How many bytes of each input one step reads if the inputs are read in place.
inline size_t move_chunk(int size) {
  return std::max(kChunk, kMove / static_cast<size_t>(size) / kLine * kLine);
}
// The place of byte `in_first` of a peer's input, for the next round.
const unsigned char* source_of(const Call& call, int peer, size_t in_first);
// Returns whether the chunk of the next round has been filled. `bytes` is how many bytes the peer has for
// this rank.
bool chunk_is_filled(const Call& call, int peer, size_t bytes);
// Counts a round. Peers are notified of each round but the last, which ends the call.
void end_drain_round(Call& call);

}  // namespace gangway::host

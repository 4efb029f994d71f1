// What the algorithms share: where the bytes of a round lie, whether they are there, and the end of a round.
//
// Thread rule: under the core's mutex; nothing here waits.
#pragma once

#include "gang/host/call/staging.h"

namespace gangway::host {

// Bytes of each input that one step reads where they lie.
inline size_t move_chunk(int size) {
  return std::max(kChunk, kMove / static_cast<size_t>(size) / kLine * kLine);
}
// Where byte `in_first` of a peer's input lies, of the round that is next.
const unsigned char* source_of(const Call& call, int peer, size_t in_first);
// Has each chunk of the next round been put there by its owner? `bytes`: how many the peer has for this rank.
bool chunk_is_filled(const Call& call, int peer, size_t bytes);
void end_drain_round(Call& call);  // counts it; peers hear of all but the last, which ends the call

}  // namespace gangway::host

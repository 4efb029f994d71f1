#include "gang/network/transfer.h"

#include <algorithm>

namespace gangway::network {

bool Transfer::has_peer(int rank) const { return std::find(peers.begin(), peers.end(), rank) != peers.end(); }

bool Transfer::advance(size_t piece) {
  const Incoming& came = in[piece];
  if (came.have == came.bytes) --missing_in;
  if (came.fold != nullptr) came.fold->confirm(came.input, came.have);
  bool goes_on = false;
  for (Outgoing& next : out) {
    const size_t before = next.ready;
    if (next.after == static_cast<int>(piece)) next.ready = came.have;
    if (next.fold != nullptr && next.fold == came.fold) next.ready = next.fold->ready_bytes();
    goes_on = goes_on || next.ready != before;
  }
  return goes_on;
}

uint64_t Transfer::sends_to(int peer) const {
  uint64_t bytes = 0;
  for (const Outgoing& piece : out)
    if (piece.to == peer) bytes += piece.bytes;
  return bytes;
}

uint64_t Transfer::takes_from(int peer) const {
  uint64_t bytes = 0;
  for (const Incoming& piece : in)
    if (piece.from == peer) bytes += piece.bytes;
  return bytes;
}

}  // namespace gangway::network

#include "gang/network/transfer.h"

namespace gangway::network {

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

// Prepares a call before it is published on the board. Pure functions.
#pragma once

#include "gang/host/call/algorithm.h"

namespace gangway::host {

// Fills in the algorithm, the sizes, which members need whose input, and a copy of the counts.
void prepare(Op& op, Lane& lane, const Algorithm& algorithm, const Collective& c, int rank, int size);
// A hash of the call and of all calls before it in its lane, whose hash is `history`. Two ranks made the same
// calls if their hashes are equal.
uint64_t fingerprint(const Op& op, uint64_t history, int size);

}  // namespace gangway::host

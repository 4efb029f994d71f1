// What a call knows of itself before it is on the board. Pure functions.
#pragma once

#include "gang/host/call/algorithm.h"

namespace gangway::host {

// Sets the algorithm, the sizes, whose input goes to whom, and a copy of the counts.
void prepare(Op& op, Lane& lane, const Algorithm& algorithm, const Collective& c, int rank, int size);
// A hash of the call and of all calls before it in its lane: `history` is the hash of those.
uint64_t fingerprint(const Op& op, uint64_t history, int size);

}  // namespace gangway::host

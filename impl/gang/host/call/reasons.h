// Why a call cannot go on, in words: another call than the peers', a lost or departed rank, a broken board. And the two
// looks that keep a rank from using memory that others have taken back.
//
// Thread rule: any thread; the calls that are passed are under the core's mutex.
#pragma once

#include <optional>
#include <string>

#include "gang/host/call/op.h"

namespace gangway::host {

std::string call_text(const Team& team, const Op& op);  // "gang.all_reduce #3"

// Why the engine is broken, told from the call `op`, or from `call` ("" for none) where that is null. Of several
// reasons the first in time counts: a rank that was told of a failure may have left because of it. None: it is not broken.
std::optional<Error> why_broken(const Team& team, const Op* op, const char* call);
Error left_error(const Team& team, const Op& op, int r);      // r left without shutdown
Error shutdown_error(const Team& team, const Op& op, int r);  // r has shut down instead of coming

// Rank `peer` came with another call, which its slot describes.
[[noreturn]] void mismatch(const Team& team, const Op& op, int peer, const Slot& slot);
inline void check_fingerprint(const Team& team, const Op& op, int peer, const Slot& slot) {
  if (slot.fingerprint.load(std::memory_order_acquire) != op.fingerprint) mismatch(team, op, peer, slot);
}

// Before a write into other ranks' memory, after it was counted in RankSlot::writing. Ranks that go on without this one
// set `closed`, then look at its `writing`.
void refuse_when_closed(const Team& team, const Op& op);
// After the last read: what was read where it lies is no result when its owner gave the call up meanwhile.
void refuse_when_given_up(const Team& team, const Op& op);

}  // namespace gangway::host

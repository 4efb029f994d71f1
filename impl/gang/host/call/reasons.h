// The reasons for which a call fails: the peers made a different call, a rank was lost or has left, or the
// engine is broken. This file makes the errors with their texts. Two more checks prevent a rank from using
// memory that other ranks have taken back.
//
// Thread rule: any thread; the calls that are passed are under the core's mutex.
#pragma once

#include <optional>
#include <string>

#include "gang/host/call/op.h"

namespace gangway::host {

std::string call_text(const Team& team, const Op& op);  // "gang.all_reduce #3"

// Returns why the engine is broken, or nothing if it is not. The error names the call `op`, or `call` if `op`
// is null ("" for no call). If there are several reasons, the earliest is returned, because the others may be
// its consequences: a rank may have left because it learned of a failure.
std::optional<Error> why_broken(const Team& team, const Op* op, const char* call);
Error left_error(const Team& team, const Op& op, int r);      // r left without a shutdown
Error shutdown_error(const Team& team, const Op& op, int r);  // r shut down instead of making the call

// Throws MISMATCH: rank `peer` made a different call, which its slot describes.
[[noreturn]] void mismatch(const Team& team, const Op& op, int peer, const Slot& slot);
inline void check_fingerprint(const Team& team, const Op& op, int peer, const Slot& slot) {
  if (slot.fingerprint.load(std::memory_order_acquire) != op.fingerprint) mismatch(team, op, peer, slot);
}

// Throws if the other ranks have gone on without this one. Call it before a write into other ranks' memory,
// after the write was counted in RankSlot::writing: the ranks that go on set `closed` first and then look at
// `writing`.
void refuse_when_closed(const Team& team, const Op& op);
// Throws if the owner of an input that was read in place has meanwhile failed the call, because the bytes
// that were read may be wrong. Call it after the last read.
void refuse_when_given_up(const Team& team, const Op& op);

}  // namespace gangway::host

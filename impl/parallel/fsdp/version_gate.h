// The ownership fence of one unit in a shared region: who may read and who may write its rows, when.
//
// Two counters per rank, each holding a version of the values:
//   ready[r]    = v: owner r has written its rows of version v. Written after the step and the cast.
//   released[r] = v: reader r will not read version v any more.
// Rules:
//   - A reader may read while its unit is unsharded. unshard (wait_ready) waits for ready[*] >= its own
//   version.
//   - An owner may write version v + 1 into its rows only between release + wait_released (released[*] >= v)
//     and publish (ready[own] = v + 1).
//   - A rank releases v before it writes anything itself, and only while nothing of it is unsharded: it is
//     the first thing that an update does, for every unit, touched or not.
// So a rank that is still in backward at version v holds all owners back, and an owner that is late holds the
// readers of v + 1 back. A rank's own version changes with its own publish, never by looking at a peer.
//
// publish stores with release order and the waits load with acquire order, so rows need no atomics.
//
// Thread rule: one thread at a time for each rank; the counters are what ranks share.
#pragma once

#include <cstdint>
#include <string>

#include "gang/gang.h"

namespace gangway {

class VersionGate {
 public:
  static size_t bytes(int ranks);  // of counters, for one unit

  // Counters at `offset` of a zeroed region of the gang; without memory (meta) nothing is ever waited for.
  VersionGate(GangPtr gang, const SharedRegion& region, size_t offset, std::string unit);

  void wait_ready();
  void release();
  void wait_released();
  void publish();

 private:
  struct Counters;
  Counters& of(int rank) const;

  GangPtr gang_;
  std::shared_ptr<Buffer> memory_;
  size_t offset_;
  std::string ready_name_, released_name_;
  uint64_t version_ = 0;     // 0 until the first publish
  uint64_t seen_ready_ = 0;  // all owners have published this version: no need to look again
};

}  // namespace gangway

// The version gate of one parameter group in a shared region decides when a rank may read and when it may
// write rows.
//
// Every rank has two counters, which hold versions of the values:
//   ready[r]    = v: owner r has written its rows of version v, after the optimizer's step and the cast.
//   released[r] = v: reader r will not read version v any more.
// Rules:
//   - A reader may read while its parameter group is unsharded. unshard (wait_ready) waits until ready[*] >=
//     its own version.
//   - An owner may write version v + 1 into its rows only between release + wait_released (released[*] >= v)
//     and publish (ready[own] = v + 1).
//   - A rank releases v before it writes any rows itself, and only while none of its parameter groups is
//     unsharded: an update begins with the release of every parameter group, whether it was used or not.
// So a rank that is still in backward at version v delays all owners, and a late owner delays the readers of
// v + 1. The version of a rank changes only with its own publish, never because of a peer.
//
// publish stores with release order and the waits load with acquire order, so the rows themselves need no
// atomics.
//
// Thread rule: one thread at a time on each rank; ranks share only the counters.
#pragma once

#include <cstdint>
#include <string>

#include "gang/gang.h"

namespace gangway {

class VersionGate {
 public:
  static size_t bytes(int ranks);  // size of the counters of one parameter group

  // The counters are at `offset` in a zeroed shared region of the gang. On a meta device, which has no
  // memory, no call ever waits.
  VersionGate(GangPtr gang, const SharedRegion& region, size_t offset, std::string group);

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
  uint64_t seen_ready_ = 0;  // all owners have published this version, so wait_ready need not look again
};

}  // namespace gangway

// Plans of long calls in two levels. Rail i of a host is its i-th rank; rails work side by side, so that all
// ranks of a host share its network, and each block crosses between two hosts once.
//
// | op             | between hosts                                                                         |
// |----------------|---------------------------------------------------------------------------------------|
// | all_reduce     | rail i folds slice i of its host's inputs onto what the host before has folded; the   |
// |                | last host sends the result to rail i of all, which hands it on                        |
// | reduce_scatter | the rails of rank r fold part r in the same way; the last one sends the result to     |
// |                | rank r. Where this sends less than every input straight to its rank                   |
// | all_gather     | a rank sends its block to its rail of each other host, which hands it on              |
// | broadcast      | the root sends slice i to rail i of each host, which hands it on                      |
//
// Folds go from host to host only where each host's ranks follow one another, so that they are left folds in
// rank order.
//
// What one host has folded travels in the type of the accumulator, and is rounded once, by the last host.
//
// Thread rule: values of one thread.
#pragma once

#include "gang/network/pieces.h"

namespace gangway::network {

class HostPieces : public Pieces {
 protected:
  using Pieces::Pieces;
  // Returns false, and adds nothing, if the call is short or has no such plan.
  bool add_by_hosts();

 private:
  void reduce_by_hosts();
  void reduce_slice(int rail, size_t first, size_t count, char* result);
  bool chain_sends_less() const;
  void scatter_by_hosts();
  void scatter_part(int owner);
  SliceFold& fold_slice(int number, int rail, size_t first, size_t count, const FoldResult& result);
  void gather_by_hosts();
  void broadcast_by_hosts();
};

}  // namespace gangway::network

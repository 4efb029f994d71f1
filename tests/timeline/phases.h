// Where a modelled step's time goes, by phase.
//
// Thread rule: pure functions.
#pragma once

#include <string>
#include <vector>

#include "timeline/simulate.h"

namespace gangway::timeline {

struct Phase {
  std::string name;
  double seconds = 0;
};
// The phases of one rank, always the same ones in the same order. Their sum is the step's length. Products of
// which a side is `vocabulary` are the head's.
std::vector<Phase> phases(const std::vector<gpu_emulation::Entry>& rank, const RankTimes& times,
                          uint64_t vocabulary);

}  // namespace gangway::timeline

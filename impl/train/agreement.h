// What ranks tell each other around a step: one small all-gather each, on root's control channel.
//
// Thread rule: collective over root.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "parallel/model/model.h"

namespace gangway {

// Sums over the whole mesh. What is equal on several ranks (tp, cp, pp) counts once.
struct Totals {
  int64_t weight = 0, tokens = 0;
};

// Ends a check phase. All ranks throw the first refusal (lowest rank), or MISMATCH when `said`, the call's
// arguments as text, differs; the gangs work on. Without either: the sums.
Totals agree(Gangs& gangs, const std::optional<Error>& refusal, const std::string& said, const Totals& mine);

// What came out of the microbatches of one rank; then of all.
struct Outcome {
  double loss = 0;
  bool finite = true;
};
// All ranks throw the first refusal (lowest rank); the gangs work on. Without one: loss summed in rank order,
// finite where all are.
Outcome exchange(Gangs& gangs, const std::optional<Error>& refusal, const Outcome& mine);

}  // namespace gangway

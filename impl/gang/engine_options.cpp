#include "gang/engine_options.h"

namespace gangway {

EngineOptions child_options(const EngineOptions& own, std::span<const int> ranks, int rank,
                            const std::string& label) {
  EngineOptions child = own;
  child.rank = rank;
  child.size = static_cast<int>(ranks.size());
  child.label = label;
  bool same = child.size == own.size;  // then the child names its ranks as the gang itself does
  for (size_t i = 0; same && i < ranks.size(); ++i) same = ranks[i] == static_cast<int>(i);
  if (same) return child;
  child.members.clear();
  for (const int r : ranks)
    child.members.push_back(own.members.empty() ? r : own.members[static_cast<size_t>(r)]);
  return child;
}

std::string rank_text(const EngineOptions& gang, int rank) {
  const std::string words = "rank " + std::to_string(rank);
  if (rank < 0 || static_cast<size_t>(rank) >= gang.members.size()) return words;
  return words + " (global rank " + std::to_string(gang.members[static_cast<size_t>(rank)]) + ")";
}

}  // namespace gangway

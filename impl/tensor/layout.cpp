#include "tensor/layout.h"

#include <algorithm>

namespace gangway {

Placement Placement::shard(std::string axis, int dim, std::vector<int64_t> bounds) {
  return {Kind::shard, std::move(axis), dim, std::move(bounds)};
}
Placement Placement::replicate(std::string axis) { return {Kind::replicate, std::move(axis), 0, {}}; }
Placement Placement::partial(std::string axis) { return {Kind::partial, std::move(axis), 0, {}}; }

std::vector<int64_t> ceil_bounds(int64_t n, int64_t ranks) {
  const int64_t rows = (n + ranks - 1) / ranks;
  std::vector<int64_t> bounds;
  for (int64_t r = 0; r <= ranks; ++r) bounds.push_back(std::min(n, r * rows));
  return bounds;
}

std::vector<int64_t> balanced_bounds(int64_t n, int64_t ranks) {
  std::vector<int64_t> bounds;
  for (int64_t r = 0; r <= ranks; ++r) bounds.push_back(n / ranks * r + std::min(r, n % ranks));
  return bounds;
}

std::string describe(const Layout& layout) {
  std::string s;
  for (const Placement& p : layout) {
    if (!s.empty()) s += ", ";
    s += p.axis + ": ";
    switch (p.kind) {
      case Placement::Kind::shard: s += "Shard(" + std::to_string(p.dim) + ")"; break;
      case Placement::Kind::replicate: s += "Replicate"; break;
      case Placement::Kind::partial: s += "Partial"; break;
    }
  }
  return s.empty() ? "replicated" : s;
}

}  // namespace gangway

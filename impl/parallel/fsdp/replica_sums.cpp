#include "parallel/fsdp/replica_sums.h"

#include <algorithm>

#include "base/philox.h"
#include "nn/gradient.h"

namespace gangway {
namespace {

// The sums are those of disjoint sets of parameters: bit 0 says that tp does not split them, bit 1 that
// every data rank has them whole.
constexpr int64_t kUnsplit = 1, kWhole = 2;

bool is_unsplit(const Parameter& p, const Mesh& mesh) {
  const Placement* const tp = find_axis(p.layout, name(Axis::tp));
  return mesh.degree(Axis::tp) > 1 && tp != nullptr && tp->kind == Placement::Kind::replicate;
}

}  // namespace

bool has_replicas(const FsdpState& state) {
  const Mesh& mesh = state.gangs()->mesh();
  return mesh.degree(Axis::pp) > 1 || mesh.degree(Axis::tp) > 1 ||
         std::any_of(state.groups().begin(), state.groups().end(),
                     [](const auto& group) { return group->place().replica_ranks() > 1; });
}

void add_replica_sums(const FsdpState& state, Ops& ops, const Tensor& sums, Stream& stream) {
  const Mesh& mesh = state.gangs()->mesh();
  for (const auto& group : state.groups()) {
    const bool replicated = group->place().replica_ranks() > 1, whole = group->place().shards == nullptr;
    for (const NamedParameter& named : group->parameters()) {
      const Parameter& p = *named.parameter;
      const bool unsplit = is_unsplit(p, mesh);
      if (!wants_gradient(p) || !p.shard || p.shard.count() == 0 || !(replicated || unsplit)) continue;
      const int64_t set = (unsplit ? kUnsplit : 0) + (whole ? kWhole : 0);
      const auto key = static_cast<uint32_t>(philox_key(0, p.full_name));
      ops.checksum({.x = p.shard, .sum = sums.slice(0, set, set + 1), .key = key}, stream);
    }
  }
}

ReplicaSums replica_sums(std::span<const int64_t> sums) {
  ReplicaSums found;
  for (int64_t set = 0; set < kReplicaSums; ++set) {
    const auto sum = static_cast<uint32_t>(sums[static_cast<size_t>(set)]);
    found.rows += sum;
    if ((set & kWhole) != 0) found.whole += sum;
    if ((set & kUnsplit) != 0) found.unsplit += sum;
  }
  return found;
}

}  // namespace gangway

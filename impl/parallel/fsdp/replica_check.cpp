#include "parallel/fsdp/replica_check.h"

#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <iterator>
#include <optional>

#include "base/interrupt.h"
#include "gang/agreement.h"
#include "parallel/collective_call.h"
#include "parallel/fsdp/replica_sums.h"
#include "tensor/host_view.h"

namespace gangway {
namespace {

constexpr int64_t kBlockElements = 1 << 17;

struct Checked {
  const Parameter* parameter;
  std::vector<uint64_t> blocks;  // one checksum for each block
};

// The parameters that have replicas on the same ranks, in the order of the model.
struct Replicated {
  GangPtr gang;
  std::vector<Checked> parameters;
};

std::string block_of(const Parameter& p, size_t block, Stream& stream) {
  const Tensor own = p.shard.reshape(Shape{p.shard.count()});
  const int64_t first = static_cast<int64_t>(block) * kBlockElements;
  const Tensor part = own.slice(0, first, std::min(first + kBlockElements, own.count()));
  const Tensor host = read_on_host(part, stream);
  return {static_cast<const char*>(host.raw()), host.bytes()};
}

std::vector<uint64_t> checksums_of(const Parameter& p, Stream& stream) {
  std::vector<uint64_t> checksums;
  for (int64_t at = 0; p.shard && at < p.shard.count(); at += kBlockElements) {
    poll_interrupt_throttled();
    const std::string bytes = block_of(p, checksums.size(), stream);
    checksums.push_back(XXH3_64bits(bytes.data(), bytes.size()));
  }
  return checksums;
}

// Returns the gang of all ranks that hold the same shard: the replicas of the parameter group, combined with
// the ranks of tp if tp does not split the parameter.
GangPtr holders_of(const Parameter& p, const GroupContext& place) {
  const Placement* const tp = find_axis(p.layout, name(Axis::tp));
  const bool whole = tp != nullptr && tp->kind == Placement::Kind::replicate;
  return place.replicas_with(whole ? name(Axis::tp) : "");
}

std::vector<Replicated> checksums_of(const FsdpState& state, Stream& stream) {
  std::vector<Replicated> all;
  for (const auto& group : state.groups())
    for (const NamedParameter& named : group->parameters()) {
      const GangPtr gang = holders_of(*named.parameter, group->place());
      if (gang->size() == 1) continue;
      auto at = std::find_if(all.begin(), all.end(), [&](const Replicated& r) { return r.gang == gang; });
      if (at == all.end()) at = all.insert(all.end(), {gang, {}});
      at->parameters.push_back({named.parameter.get(), checksums_of(*named.parameter, stream)});
    }
  return all;
}

// Returns the index of the first number that is not equal on all ranks, or numbers.size().
size_t first_difference(Gang& gang, const std::vector<uint64_t>& numbers) {
  // The maxima of the numbers, then the maxima of their complements, which give the minima.
  std::vector<int64_t> largest;
  for (const uint64_t x : numbers) largest.push_back(static_cast<int64_t>(x));
  for (const uint64_t x : numbers) largest.push_back(static_cast<int64_t>(~x));
  Collective c;
  c.op = CollectiveOp::all_reduce;
  c.in = c.out = largest.data();
  c.count = largest.size();
  c.dtype = DType::i64;
  c.reduce = Reduce::max;
  gang.run_now(Channel::control, c);
  size_t i = 0;
  while (i < numbers.size() && largest[i] == ~largest[numbers.size() + i]) ++i;
  return i;
}

// Returns the value in the fewest digits that tell it from its neighbours.
std::string value_at(const std::string& bytes, DType dtype, size_t element) {
  const auto as = [&](auto value) {
    std::memcpy(&value, bytes.data() + element * sizeof value, sizeof value);
    char digits[32];
    return std::string(digits, std::to_chars(digits, std::end(digits), value).ptr);
  };
  return dtype == DType::f64 ? as(double{}) : as(float{});
}

// Returns a text like "model.norm.weight[3]" for an element of the own shard, with its index in the full
// tensor.
std::string element_name(const Parameter& p, int64_t local) {
  const Box box = p.box();
  std::string place;
  for (int d = box.shape.rank() - 1; d >= 0; --d) {
    place = std::to_string(box.first[static_cast<size_t>(d)] + local % box.shape[d]) +
            (place.empty() ? "" : ", ") + place;
    local /= box.shape[d];
  }
  return p.full_name + "[" + place + "]";
}

// Compares a parameter that differs between some ranks with that of rank 0. Returns the error if this rank
// differs.
std::optional<Error> compare_values(const Replicated& r, const Checked& checked, int root_rank,
                                    const char* call, Stream& stream) {
  const size_t block = first_difference(*r.gang, checked.blocks);
  const std::string own = block_of(*checked.parameter, block, stream);
  const std::string first_rank =
      r.gang->agreement().broadcast_bytes(Channel::control, std::to_string(root_rank), 0);
  const std::string theirs = r.gang->agreement().broadcast_bytes(Channel::control, own, 0);
  const DType dtype = checked.parameter->shard.dtype();
  const auto differs = std::mismatch(own.begin(), own.end(), theirs.begin()).first - own.begin();
  if (static_cast<size_t>(differs) == own.size()) return std::nullopt;
  const size_t element = static_cast<size_t>(differs) / item_bytes(dtype);
  const auto local = static_cast<int64_t>(block) * kBlockElements + static_cast<int64_t>(element);
  return Error(Code::mismatch, text(call, ": replicas differ: ", element_name(*checked.parameter, local),
                                    " is ", value_at(theirs, dtype, element), " on rank ", first_rank, ", ",
                                    value_at(own, dtype, element), " on rank ", root_rank,
                                    "; give all ranks the same first values, or load a checkpoint on all"));
}

std::optional<Error> compare(const Replicated& r, int root_rank, const char* call, Stream& stream) {
  std::vector<uint64_t> checksums;
  for (const Checked& checked : r.parameters)
    checksums.push_back(XXH3_64bits(checked.blocks.data(), checked.blocks.size() * sizeof(uint64_t)));
  const size_t i = first_difference(*r.gang, checksums);
  if (i == checksums.size()) return std::nullopt;
  return compare_values(r, r.parameters[i], root_rank, call, stream);
}

}  // namespace

void check_replicas(const FsdpState& state, const char* name, Stream& stream) {
  const Gang& root = *state.gangs()->root();
  if (!has_replicas(state) || root.device().kind() == DeviceKind::meta) return;
  const CollectiveCall call(*state.gangs(), name);
  std::vector<Replicated> all;
  std::optional<Error> differ;
  call.check([&] { all = checksums_of(state, stream); });
  call.run([&] {
    for (const Replicated& r : all) {  // does not stop early, because peers in other gangs wait
      std::optional<Error> found = compare(r, root.rank(), name, stream);
      if (!differ) differ = std::move(found);
    }
  });
  call.check([&] {
    if (differ) throw *differ;
  });
}

}  // namespace gangway

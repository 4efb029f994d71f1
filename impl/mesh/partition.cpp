#include "mesh/partition.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace gangway {
namespace {

std::vector<int> ranks_below(int count) {
  std::vector<int> all(static_cast<size_t>(count));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

bool contains(std::span<const int> list, int value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

std::string joined(std::span<const int> numbers) {
  std::string list;
  for (const int n : numbers) list += (list.empty() ? "" : ", ") + std::to_string(n);
  return list;
}

}  // namespace

Partition::Partition(GangPtr base, std::vector<int> ranks, std::vector<int> shape)
    : base_(std::move(base)), ranks_(std::move(ranks)), shape_(std::move(shape)) {
  const auto own = std::find(ranks_.begin(), ranks_.end(), base_->rank());
  if (own != ranks_.end()) rank_ = static_cast<int>(own - ranks_.begin());
}

Partition::Partition(GangPtr base) : Partition(base, ranks_below(base->size()), {base->size()}) {}

Partition Partition::inclusive(std::span<const int> ranks) const {
  if (ranks.empty()) fail(Code::invalid_argument, "partition.inclusive: the list of workers is empty");
  std::vector<int> chosen;
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (contains(ranks.first(i), ranks[i]))
      fail(Code::invalid_argument, "partition.inclusive: worker ", ranks[i], " is listed twice");
    if (ranks[i] < 0 || ranks[i] >= size())
      fail(Code::invalid_argument, "partition.inclusive: worker ", ranks[i], " is outside [0, ", size(), ")");
    chosen.push_back(ranks_[static_cast<size_t>(ranks[i])]);
  }
  const int count = static_cast<int>(chosen.size());
  return Partition(base_, std::move(chosen), {count});
}

Partition Partition::unite(const Partition& other) const {
  if (base_ != other.base_)
    fail(Code::invalid_argument, "partition.union: the partitions are of two gangs, \"", base_->name(),
         "\" and \"", other.base_->name(), "\"; a union needs one");
  std::vector<int> both = ranks_;
  for (const int r : other.ranks_)
    if (!contains(ranks_, r)) both.push_back(r);
  const int count = static_cast<int>(both.size());
  return Partition(base_, std::move(both), {count});
}

Partition Partition::cartesian(std::span<const int> shape) const {
  if (shape.empty() || shape.size() > kMaxPartitionDims)
    fail(Code::invalid_argument, "partition.cartesian: ", shape.size(), " dims, not 1 to ",
         kMaxPartitionDims);
  int64_t workers = 1;
  for (const int n : shape) {
    if (n < 1) fail(Code::invalid_argument, "partition.cartesian: a dim of [", joined(shape), "] is below 1");
    workers = std::min<int64_t>(workers * n, int64_t{1} << 32);
  }
  if (workers != size())
    fail(Code::invalid_argument, "partition.cartesian: a grid of [", joined(shape), "] has ", workers,
         " places, but the partition has ", size(), " workers; each must have one");
  return Partition(base_, ranks_, {shape.begin(), shape.end()});
}

Partition Partition::subtopology(std::span<const int> kept) const {
  check_dims("partition.subtopology", kept);
  if (kept.empty()) fail(Code::invalid_argument, "partition.subtopology: no dim is kept");
  std::vector<int> group, shape;
  const std::vector<int> own = index();
  for (int d = 0; d < dims(); ++d)
    if (contains(kept, d)) shape.push_back(shape_[static_cast<size_t>(d)]);
  for (int w = 0; active() && w < size(); ++w) {
    const std::vector<int> at = index_of(w);
    bool shares = true;
    for (int d = 0; d < dims(); ++d)
      shares = shares && (contains(kept, d) || at[static_cast<size_t>(d)] == own[static_cast<size_t>(d)]);
    if (shares) group.push_back(ranks_[static_cast<size_t>(w)]);
  }
  return Partition(base_, std::move(group), std::move(shape));
}

std::vector<int> Partition::index_of(int worker) const {
  if (worker < 0) return {};
  std::vector<int> index(shape_.size());
  for (size_t d = shape_.size(); d-- > 0; worker /= shape_[d]) index[d] = worker % shape_[d];
  return index;
}

int Partition::worker_at(std::span<const int> index) const {
  int worker = 0;
  for (size_t d = 0; d < shape_.size(); ++d) worker = worker * shape_[d] + index[d];
  return worker;
}

std::pair<int, int> Partition::neighbors(int dim) const {
  const int one[] = {dim};
  check_dims("partition.neighbors", one);
  if (!active()) return {-1, -1};
  std::vector<int> index = this->index();
  const auto d = static_cast<size_t>(dim);
  const auto at = [&](int i) {
    if (i < 0 || i >= shape_[d]) return -1;
    std::vector<int> place = index;
    place[d] = i;
    return worker_at(place);
  };
  return {at(index[d] - 1), at(index[d] + 1)};
}

void Partition::check_dims(const char* call, std::span<const int> dims) const {
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] < 0 || dims[i] >= this->dims())
      fail(Code::invalid_argument, call, ": dim ", dims[i], " is outside [0, ", this->dims(),
           "), the dims of the partition");
    if (contains(dims.first(i), dims[i]))
      fail(Code::invalid_argument, call, ": dim ", dims[i], " is named twice");
  }
}

std::vector<int> Partition::dims_of(const char* call, const std::vector<int>* dims,
                                    const std::vector<int>* kept) const {
  if (dims != nullptr && kept != nullptr)
    fail(Code::invalid_argument, call, ": axes and axes_keep are both given; give one of them");
  if (dims == nullptr && kept == nullptr)
    fail(Code::invalid_argument, call, ": neither axes nor axes_keep is given; give one of them");
  check_dims(call, dims != nullptr ? *dims : *kept);
  std::vector<int> chosen;
  for (int d = 0; d < this->dims(); ++d)
    if (dims != nullptr ? contains(*dims, d) : !contains(*kept, d)) chosen.push_back(d);
  return chosen;
}

std::string Partition::text() const { return "[" + joined(shape_) + "] of ranks " + joined(ranks_); }

}  // namespace gangway

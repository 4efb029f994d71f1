#include "gang/network/host_pieces.h"

#include <algorithm>

#include "gang/kernels/fold.h"
#include "tensor/layout.h"

namespace gangway::network {
namespace {

constexpr size_t kLong = 16 << 10;  // bytes of a call that is worth the longer way

// The numbers of the parts, so that no two pieces between the same ranks have the same one.
constexpr int kBlockOf = 1;      // + the rank whose block or part it is, or the slice
constexpr int kFolded = 0x1000;  // + the rank or the slice
constexpr int kResult = 0x2000;  // + the rank or the slice

}  // namespace

bool HostPieces::add_by_hosts() {
  if (!topology_.has_levels()) return false;
  if (c_.op == CollectiveOp::all_reduce && topology_.is_consecutive && c_.count * item_ > kLong) {
    reduce_by_hosts();
    return true;
  }
  if (c_.op == CollectiveOp::reduce_scatter && topology_.is_consecutive &&
      in_count(c_, rank_, size_) * item_ > kLong && chain_sends_less()) {
    scatter_by_hosts();
    return true;
  }
  if (c_.op == CollectiveOp::broadcast && c_.count * item_ > kLong) {
    broadcast_by_hosts();
    return true;
  }
  if (c_.op != CollectiveOp::all_gather || out_count(c_, rank_, size_) * item_ <= kLong) return false;
  gather_by_hosts();
  return true;
}

void HostPieces::reduce_by_hosts() {
  const std::vector<int64_t> bounds = balanced_bounds(static_cast<int64_t>(c_.count), topology_.rails);
  char* const result = c_.accumulate ? stage(c_.count * item_) : out();
  for (int i = 0; i < topology_.rails; ++i) {
    const auto first = static_cast<size_t>(bounds[static_cast<size_t>(i)]);
    const auto end = static_cast<size_t>(bounds[static_cast<size_t>(i) + 1]);
    if (end != first) reduce_slice(i, first * item_, end - first, result);
  }
  if (c_.accumulate)
    t_->last = [result, c = c_] { host::fold_kernels().add(c.out, result, c.count, c.dtype); };
}

// `first` is the byte at which the slice begins.
void HostPieces::reduce_slice(int i, size_t first, size_t count, char* result) {
  const int own = topology_.host_of(rank_), last = topology_.hosts() - 1, folder = topology_.rail(own, i);
  const size_t bytes = count * item_, folded_bytes = count * item_bytes(folded_type(c_.dtype));
  if (folder != rank_) {
    send(folder, kBlockOf + i, in() + first, bytes);
    take(folder, kResult + i, result + first, bytes);
    return;
  }
  const std::vector<int>& ranks = topology_.ranks_on(own);
  const bool is_last = own == last;
  // A prefix may lie where the result comes to: an element of the result comes after its prefix has left.
  const bool is_alone = own == 0 && ranks.size() == 1 && !is_narrow(c_.dtype);  // its input is the prefix
  const char* folded = in() + first;
  const SliceFold* fold = nullptr;
  if (!is_alone) {
    char* const to = is_last || !is_narrow(c_.dtype) ? result + first : stage(folded_bytes);
    folded = to;
    fold = &fold_slice(i, i, first, count, {to, is_last});
  }
  int comes = -1;
  if (is_last) {
    for (int host = 0; host < last; ++host)
      send_folded(topology_.rail(host, i), kResult + i, *fold, folded, bytes);
  } else {
    const int next = topology_.rail(own + 1, i);
    if (is_alone)
      send(next, kFolded + i, folded, folded_bytes);
    else
      send_folded(next, kFolded + i, *fold, folded, folded_bytes);
    comes = take(topology_.rail(last, i), kResult + i, result + first, bytes);
  }
  for (const int r : ranks) {
    if (r == rank_) continue;
    if (is_last)
      send_folded(r, kResult + i, *fold, folded, bytes);
    else
      send(r, kResult + i, result + first, bytes, comes);
  }
}

// Returns whether the busiest host sends fewer bytes to others if parts are folded from host to host than if
// every input goes straight to its rank.
bool HostPieces::chain_sends_less() const {
  const size_t all = in_count(c_, rank_, size_) * item_;
  const int last = topology_.hosts() - 1;
  const size_t folded = all / item_ * item_bytes(folded_type(c_.dtype));
  size_t straight = 0, chain = 0;
  for (int host = 0; host <= last; ++host) {
    size_t elsewhere = all;
    for (const int r : topology_.ranks_on(host)) elsewhere -= part(c_.counts, r);
    straight = std::max(straight, topology_.ranks_on(host).size() * elsewhere);
    chain = std::max(chain, host == last ? elsewhere : folded);
  }
  return chain < straight;
}

void HostPieces::scatter_by_hosts() {
  for (int r = 0; r < size_; ++r)
    if (part(c_.counts, r) != 0) scatter_part(r);
}

// The result may come to where this rank's input lies: an element of it comes after that of the input has
// left.
void HostPieces::scatter_part(int owner) {
  const int own = topology_.host_of(rank_), last = topology_.hosts() - 1, rail = topology_.index_of(owner);
  const int folder = topology_.rail(own, rail), sender = topology_.rail(last, rail);
  const size_t first = offset(c_.counts, owner), bytes = part(c_.counts, owner);
  const size_t folded_bytes = bytes / item_ * item_bytes(folded_type(c_.dtype));
  const bool is_alone = own == 0 && topology_.ranks_on(own).size() == 1 && !is_narrow(c_.dtype);
  if (folder != rank_) {
    send(folder, kBlockOf + owner, in() + first, bytes);
  } else if (is_alone) {  // its input is the prefix
    send(topology_.rail(1, rail), kFolded + owner, in() + first, bytes);
  } else if (own != last) {
    char* const to = stage(folded_bytes);
    const SliceFold& fold = fold_slice(owner, rail, first, bytes / item_, {to, /*is_final=*/false});
    send_folded(topology_.rail(own + 1, rail), kFolded + owner, fold, to, folded_bytes);
  } else if (owner == rank_) {
    fold_slice(owner, rail, first, bytes / item_, {out(), /*is_final=*/true, c_.accumulate});
  } else {
    char* const to = stage(bytes);
    const SliceFold& fold = fold_slice(owner, rail, first, bytes / item_, {to});
    send_folded(owner, kResult + owner, fold, to, bytes);
  }
  if (owner != rank_ || sender == rank_) return;
  char* const result = c_.accumulate ? stage(bytes) : out();
  take(sender, kResult + owner, result, bytes);
  if (c_.accumulate)
    t_->last = [result, count = bytes / item_, c = c_] {
      host::fold_kernels().add(c.out, result, count, c.dtype);
    };
}

// Folds this host's inputs of a slice onto what the hosts before have folded. `number`: of its pieces.
SliceFold& HostPieces::fold_slice(int number, int rail, size_t first, size_t count,
                                  const FoldResult& result) {
  const int own = topology_.host_of(rank_);
  SliceFold& fold = add_fold(count, result);
  if (own > 0)
    take_to_fold(topology_.rail(own - 1, rail), kFolded + number, fold,
                 count * item_bytes(folded_type(c_.dtype)), /*is_prefix=*/true);
  for (const int r : topology_.ranks_on(own)) {
    if (r == rank_)
      fold.add_own(in() + first);
    else
      take_to_fold(r, kBlockOf + number, fold, count * item_);
  }
  fold.begin();
  return fold;
}

void HostPieces::gather_by_hosts() {
  const int own = topology_.host_of(rank_);
  for (int owner = 0; owner < size_; ++owner) {
    const size_t bytes = part(c_.counts, owner);
    char* const to = out() + offset(c_.counts, owner);
    const int number = kBlockOf + owner, home = topology_.host_of(owner), index = topology_.index_of(owner);
    const int relay = topology_.rail(own, index);
    if (owner == rank_) {
      copy(to, in(), bytes);
      for (const int r : topology_.ranks_on(own))
        if (r != rank_) send(r, number, in(), bytes);
      for (int host = 0; host < topology_.hosts(); ++host)
        if (host != own) send(topology_.rail(host, index), number, in(), bytes);
    } else if (home == own || relay != rank_) {
      take(home == own ? owner : relay, number, to, bytes);
    } else {
      const int comes = take(owner, number, to, bytes);
      for (const int r : topology_.ranks_on(own))
        if (r != rank_) send(r, number, to, bytes, comes);
    }
  }
}

void HostPieces::broadcast_by_hosts() {
  const int own = topology_.host_of(rank_), home = topology_.host_of(c_.peer);
  const size_t bytes = c_.count * item_;
  if (rank_ == c_.peer) copy(out(), in(), bytes);
  for (int host = 0; host < topology_.hosts(); ++host) {
    if (host != own && rank_ != c_.peer) continue;
    const std::vector<int>& ranks = topology_.ranks_on(host);
    if (host == home) {
      for (const int r : ranks)
        if (rank_ == c_.peer && r != rank_) send(r, kBlockOf, in(), bytes);
      if (rank_ != c_.peer) take(c_.peer, kBlockOf, out(), bytes);
      continue;
    }
    const std::vector<int64_t> bounds =
        balanced_bounds(static_cast<int64_t>(c_.count), static_cast<int64_t>(ranks.size()));
    for (size_t i = 0; i < ranks.size(); ++i) {
      const size_t first = static_cast<size_t>(bounds[i]) * item_;
      const size_t some = static_cast<size_t>(bounds[i + 1]) * item_ - first;
      const int number = kBlockOf + static_cast<int>(i);
      if (rank_ == c_.peer) {
        send(ranks[i], number, in() + first, some);
      } else if (ranks[i] != rank_) {
        take(ranks[i], number, out() + first, some);
      } else {
        const int comes = take(c_.peer, number, out() + first, some);
        for (const int r : ranks)
          if (r != rank_) send(r, number, out() + first, some, comes);
      }
    }
  }
}

}  // namespace gangway::network

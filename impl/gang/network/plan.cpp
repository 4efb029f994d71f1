#include "gang/network/plan.h"

#include <algorithm>
#include <cstring>

#include "gang/kernels/fold.h"
#include "gang/network/host_pieces.h"
#include "tensor/layout.h"

namespace gangway::network {
namespace {

constexpr size_t kExchange = 16 << 10;  // an all_reduce of at most so many bytes takes one hop

class Planner : public HostPieces {
 public:
  using HostPieces::HostPieces;

  TransferPtr plan() {
    if (!add_by_hosts()) add_pieces();
    t_->note.count = c_.counts == nullptr ? c_.count : 0;
    t_->note.dtype = static_cast<uint32_t>(c_.dtype);
    t_->note.root = facts(c_.op).has_root ? c_.peer : -1;
    // A send and its receive have equal notes.
    t_->note.op = static_cast<uint8_t>(c_.op == CollectiveOp::recv ? CollectiveOp::send : c_.op);
    t_->note.reduce = static_cast<uint8_t>(c_.reduce);
    t_->note.counts = hash_of_counts();
    t_->op_name = name(c_.op);
    add_peers();
    t_->missing_notes = static_cast<int>(t_->peers.size());
    t_->noted.resize(static_cast<size_t>(size_));
    t_->owes_room.resize(static_cast<size_t>(size_));
    t_->missing_in = t_->in.size();
    t_->missing_out = t_->out.size();
    return t_;
  }

 private:
  void add_peers() {
    if (is_pair(c_)) {
      t_->peers = {c_.peer};
      return;
    }
    std::vector<bool> is_peer(static_cast<size_t>(size_), leaves_ranks_out());
    for (const Incoming& piece : t_->in) is_peer[static_cast<size_t>(piece.from)] = true;
    for (const Outgoing& piece : t_->out) is_peer[static_cast<size_t>(piece.to)] = true;
    for (int r = 0; r < size_; ++r)
      if (r != rank_ && is_peer[static_cast<size_t>(r)]) t_->peers.push_back(r);
  }
  // Returns whether some rank may exchange no piece. Then notes go to all ranks, because such a rank would
  // not hear of a call that differs.
  bool leaves_ranks_out() const {
    if (c_.counts == nullptr) return c_.count == 0;
    return c_.op == CollectiveOp::all_to_all ||
           std::find(c_.counts, c_.counts + size_, size_t{0}) != c_.counts + size_;
  }
  // In an all_to_all each rank has counts of its own, so only the two ranks of a pair compare what they
  // exchange.
  uint64_t hash_of_counts() const {
    if (c_.counts == nullptr || c_.op == CollectiveOp::all_to_all) return 0;
    uint64_t h = 1;
    for (int r = 0; r < size_; ++r) h = (h ^ c_.counts[r]) * 0xff51afd7ed558ccdull, h ^= h >> 32;
    return h;
  }

  void add_pieces() {
    switch (c_.op) {
      case CollectiveOp::barrier: return;
      case CollectiveOp::all_reduce:
        return c_.count * item_ <= kExchange ? exchange_inputs() : exchange_slices();
      case CollectiveOp::reduce:
        if (rank_ != c_.peer) return send(c_.peer, 0, in(), c_.count * item_);
        return fold_from_all(0, c_.count);
      case CollectiveOp::reduce_scatter:
        for (int r = 0; r < size_; ++r)
          if (r != rank_) send(r, 0, in() + offset(c_.counts, r), part(c_.counts, r));
        return fold_from_all(offset(c_.counts, rank_), part(c_.counts, rank_) / item_);
      case CollectiveOp::broadcast:
        if (rank_ != c_.peer) return take_whole(c_.count * item_);
        copy(out(), in(), c_.count * item_);
        return send_to_all(in(), c_.count * item_);
      case CollectiveOp::all_gather: send_to_all(in(), part(c_.counts, rank_)); return take_blocks(c_.counts);
      case CollectiveOp::gather:
        if (rank_ != c_.peer) return send(c_.peer, 0, in(), part(c_.counts, rank_));
        return take_blocks(c_.counts);
      case CollectiveOp::scatter: return scatter();
      case CollectiveOp::all_to_all: return exchange_blocks();
      case CollectiveOp::send: return send(c_.peer, 0, in(), c_.count * item_);
      case CollectiveOp::recv: return take_whole(c_.count * item_);
    }
  }

  // Every rank gets all inputs and folds them. The output may be the input, which must have left before.
  void exchange_inputs() {
    const size_t bytes = c_.count * item_;
    send_to_all(in(), bytes);
    if (bytes == 0) return;
    char* const result = stage(bytes);
    fold_slice(0, c_.count, {result});
    t_->last = [result, bytes, c = c_] {
      c.accumulate ? host::fold_kernels().add(c.out, result, c.count, c.dtype)
                   : static_cast<void>(std::memcpy(c.out, result, bytes));
    };
  }

  // Rank r folds slice r and sends the result to all. A result may come into `out` while `in` is the same
  // memory: rank r has it only after this rank's slice r has left.
  void exchange_slices() {
    const std::vector<int64_t> bounds = balanced_bounds(static_cast<int64_t>(c_.count), size_);
    const auto first = [&](int r) { return static_cast<size_t>(bounds[static_cast<size_t>(r)]) * item_; };
    const size_t own = first(rank_), own_bytes = first(rank_ + 1) - own;
    char* const result = c_.accumulate ? stage(c_.count * item_) : out();
    for (int r = 0; r < size_; ++r)
      if (r != rank_) send(r, 0, in() + first(r), first(r + 1) - first(r));
    const SliceFold* const fold =
        own_bytes == 0 ? nullptr : &fold_slice(own, own_bytes / item_, {result + own});
    for (int r = 0; r < size_; ++r) {
      if (r == rank_) continue;
      if (fold != nullptr) send_folded(r, 1, *fold, result + own, own_bytes);
      take(r, 1, result + first(r), first(r + 1) - first(r));
    }
    if (c_.accumulate)
      t_->last = [result, c = c_] { host::fold_kernels().add(c.out, result, c.count, c.dtype); };
  }

  // This rank folds `count` elements of every input, which begin at byte `first` of its own.
  void fold_from_all(size_t first, size_t count) {
    if (count != 0) fold_slice(first, count, {out(), /*is_final=*/true, c_.accumulate});
  }
  SliceFold& fold_slice(size_t first, size_t count, const FoldResult& result) {
    SliceFold& fold = add_fold(count, result);
    for (int r = 0; r < size_; ++r) {
      if (r == rank_)
        fold.add_own(in() + first);
      else
        take_to_fold(r, 0, fold, count * item_);
    }
    fold.begin();
    return fold;
  }

  void take_whole(size_t bytes) { take(c_.peer, 0, out(), bytes); }

  void take_blocks(const size_t* counts) {
    for (int r = 0; r < size_; ++r)
      if (r != rank_) take(r, 0, out() + offset(counts, r), part(counts, r));
    copy(out() + offset(counts, rank_), in(), part(counts, rank_));
  }

  void scatter() {
    if (rank_ != c_.peer) return take_whole(part(c_.counts, rank_));
    for (int r = 0; r < size_; ++r)
      if (r != rank_) send(r, 0, in() + offset(c_.counts, r), part(c_.counts, r));
    copy(out(), in() + offset(c_.counts, rank_), part(c_.counts, rank_));
  }

  void exchange_blocks() {
    const size_t* const got = c_.counts == nullptr ? nullptr : c_.counts + size_;
    for (int r = 0; r < size_; ++r) {
      if (r == rank_) continue;
      send(r, 0, in() + offset(c_.counts, r), part(c_.counts, r));
      take(r, 0, out() + offset(got, r), part(got, r));
    }
    copy(out() + offset(got, rank_), in() + offset(c_.counts, rank_), part(got, rank_));
  }

  void send_to_all(const char* from, size_t bytes) {
    for (int r = 0; r < size_; ++r)
      if (r != rank_) send(r, 0, from, bytes);
  }
};

}  // namespace

TransferPtr plan_transfer(const Collective& c, int rank, const Topology& topology) {
  return Planner(c, rank, topology).plan();
}

}  // namespace gangway::network

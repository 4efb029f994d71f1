// Building blocks of plans: the pieces of one transfer, its staging memory, and where blocks begin.
//
// Thread rule: values of one thread.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>

#include "gang/network/topology.h"
#include "gang/network/transfer.h"

namespace gangway::network {

class Pieces {
 public:
  Pieces(const Collective& c, int rank, const Topology& topology)
      : c_(c),
        topology_(topology),
        rank_(rank),
        size_(static_cast<int>(topology.host.size())),
        item_(item_bytes(c.dtype)),
        t_(std::make_shared<Transfer>()) {}

 protected:
  // Sends at once, or, if `after` is the place of an incoming piece, as that comes.
  void send(int to, int part, const char* from, size_t bytes, int after = -1) {
    if (bytes == 0) return;
    Outgoing piece;
    piece.to = to;
    piece.part = static_cast<uint16_t>(part);
    piece.from = from;
    piece.bytes = bytes;
    piece.after = after;
    piece.ready = after < 0 ? bytes : 0;
    t_->out.push_back(piece);
  }
  // Sends the result of a fold, as far as it is done. To call after SliceFold::begin().
  void send_folded(int to, int part, const SliceFold& fold, const char* from, size_t bytes) {
    send(to, part, from, bytes);
    if (bytes == 0) return;
    t_->out.back().fold = &fold;
    t_->out.back().ready = fold.ready_bytes();
  }
  // Returns the place of the piece, or -1 if it has no bytes.
  int take(int from, int part, char* to, size_t bytes) {
    if (bytes == 0) return -1;
    Incoming piece;
    piece.from = from;
    piece.part = static_cast<uint16_t>(part);
    piece.to = to;
    piece.bytes = bytes;
    t_->in.push_back(piece);
    return static_cast<int>(t_->in.size()) - 1;
  }
  // Of `count` elements, of which there are some.
  SliceFold& add_fold(size_t count, const FoldResult& result) {
    t_->folds.push_back(std::make_unique<SliceFold>(c_, size_, count, result));
    return *t_->folds.back();
  }
  void take_to_fold(int from, int part, SliceFold& fold, size_t bytes, bool is_prefix = false) {
    take(from, part, nullptr, bytes);
    t_->in.back().fold = &fold;
    t_->in.back().input = fold.add_arriving(stage(bytes), is_prefix);
  }
  char* stage(size_t bytes) {
    t_->staging.push_back(std::make_unique_for_overwrite<char[]>(std::max<size_t>(bytes, 1)));
    return t_->staging.back().get();
  }
  static void copy(char* to, const char* from, size_t bytes) {
    if (bytes != 0 && to != from) std::memmove(to, from, bytes);
  }

  const char* in() const { return static_cast<const char*>(c_.in); }
  char* out() const { return static_cast<char*>(c_.out); }
  // Bytes of rank r's block, and where it begins.
  size_t part(const size_t* counts, int r) const {
    return (counts == nullptr ? c_.count : counts[r]) * item_;
  }
  size_t offset(const size_t* counts, int r) const {
    if (counts == nullptr) return c_.count * static_cast<size_t>(r) * item_;
    return std::accumulate(counts, counts + r, size_t{0}) * item_;
  }

  const Collective& c_;
  const Topology& topology_;
  const int rank_, size_;
  const size_t item_;
  const TransferPtr t_;
};

}  // namespace gangway::network

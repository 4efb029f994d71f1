// Chunks of a sequence: a value travels in pieces between ranks while products run on the pieces that are at hand.
//
// A value [B, S, D] lies over W ranks in equal parts [B, S / W, D]. Each part is cut into equal pieces along its sequence;
// a chunk of the value is made of the pieces of one number. It travels packed, rank by rank: [W, B, n, D], n tokens of a
// piece. Products take n rows at a time, since these lie together in the value.
//
// Thread rule: that of a module; collective over the gang of the redistribution.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "nn/arriving.h"
#include "parallel/redistribute.h"

namespace gangway {

// How many, and what moves one of them between a packed piece and a packed chunk. No move: the value travels whole.
struct ChunkedMove {
  std::shared_ptr<Redistribute> move;  // Shard(0) -> a gathered value, or Partial -> Shard(0)
  int ranks = 1;
  int chunks = 1;
};

// Where the chunks lie: pure arithmetic.
class SequenceChunks {
 public:
  // Of a value whose parts have this shape. INVALID_ARGUMENT: it has not three dims, or its sequence does not divide.
  SequenceChunks(const Shape& part, int ranks, int chunks);
  static const Shape& checked(const Shape& part, int chunks);

  int count() const { return static_cast<int>(chunks_); }
  Shape packed() const { return {ranks_ * batch_ * tokens_, width_}; }
  Shape packed_piece() const { return {batch_ * tokens_, width_}; }
  // Views of a chunk in the value and of its piece in this rank's part, and a packed tensor seen alike.
  Tensor of_value(const Tensor& value, int chunk) const;
  Tensor of_part(const Tensor& part, int chunk) const;
  Tensor like_value(const Tensor& packed) const;
  Tensor like_part(const Tensor& packed_piece) const;
  // Of a chunk in the value, in the packed order.
  std::vector<RowRange> rows(int chunk) const;

 private:
  int64_t batch_, ranks_, chunks_, tokens_ /* of a piece */, width_;
};

// A value that is gathered in chunks: all of them are on their way after construction. Temporaries that it takes from the
// context must stay until all have been taken.
class ArrivingSequence final : public ArrivingInput {
 public:
  ArrivingSequence(Context& ctx, const ChunkedMove& gather, const Tensor& part, const Tensor& value);

  bool holds(const Tensor& x) const override;
  std::vector<RowRange> next(Context& ctx) override;

 private:
  Redistribute& gather_;
  const SequenceChunks chunks_;
  const Tensor value_;
  std::vector<Redistribute::Started> started_;
  int taken_ = 0;
};

// The other way: each chunk of a sum is reduced into this rank's `part` while the next one is made. `product` makes this
// rank's share of some rows of the value, in a packed tensor.
using RowsProduct = std::function<void(const RowRange& rows, const Tensor& share)>;
void sum_in_chunks(Context& ctx, const ChunkedMove& sum, const Tensor& part, const RowsProduct& product);

}  // namespace gangway

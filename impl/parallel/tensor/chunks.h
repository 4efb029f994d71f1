// Chunks of a sequence: a value travels between ranks in pieces, while products compute with the pieces that
// have arrived.
//
// A value [B, S, D] lies over W ranks in equal parts [B, S / W, D]. Each part is cut into equal pieces along
// its sequence, and chunk i of the value consists of piece i of every part. A chunk travels packed, in the
// order of the ranks: [W, B, n, D], where n is the number of tokens of a piece. A product takes n rows at a
// time, because these are contiguous in the value.
//
// Thread rule: that of a module; collective over the gang of the redistribution.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "nn/arriving.h"
#include "parallel/redistribute.h"

namespace gangway {

// The number of chunks, and the redistribution that moves one chunk between its packed form and this rank's
// packed piece. If `move` is null, the value travels whole.
struct ChunkedMove {
  std::shared_ptr<Redistribute> move;  // Shard(0) -> a gathered value, or Partial -> Shard(0)
  int ranks = 1;
  int chunks = 1;
};

// The arithmetic of where the chunks lie.
class SequenceChunks {
 public:
  // `part` is the shape of one rank's part. INVALID_ARGUMENT: it does not have three dims, or `chunks` does
  // not divide its sequence.
  SequenceChunks(const Shape& part, int ranks, int chunks);
  static const Shape& checked(const Shape& part, int chunks);

  int count() const { return static_cast<int>(chunks_); }
  Shape packed() const { return {ranks_ * batch_ * tokens_, width_}; }
  Shape packed_piece() const { return {batch_ * tokens_, width_}; }
  // The first two return a chunk as a view of the value, and this rank's piece of it as a view of this rank's
  // part. The last two view a packed chunk and a packed piece with the same dims.
  Tensor of_value(const Tensor& value, int chunk) const;
  Tensor of_part(const Tensor& part, int chunk) const;
  Tensor like_value(const Tensor& packed) const;
  Tensor like_part(const Tensor& packed_piece) const;
  // The rows of a chunk in the value, in the packed order.
  std::vector<RowRange> rows(int chunk) const;

 private:
  int64_t batch_, ranks_, chunks_, tokens_ /* of a piece */, width_;
};

// A value that is gathered in chunks. The constructor starts the gather of all chunks. The caller keeps the
// temporaries that the constructor takes from the context until all chunks have been taken.
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

// The opposite direction: reduces each chunk of a sum into this rank's `part` while the next chunk is
// computed. `product` computes this rank's addend for some rows of the value into a packed tensor.
using RowsProduct = std::function<void(const RowRange& rows, const Tensor& share)>;
void sum_in_chunks(Context& ctx, const ChunkedMove& sum, const Tensor& part, const RowsProduct& product);

}  // namespace gangway

// Letters in names of tensors: B batch, W ranks, K chunks, N tokens of a piece, D width.
#include "parallel/tensor/chunks.h"

namespace gangway {

const Shape& SequenceChunks::checked(const Shape& part, int chunks) {
  if (part.rank() != 3)
    fail(Code::invalid_argument, "overlap_chunks is ", chunks, ", but the value is ", part.text(),
         "; a sequence that travels in chunks is [batch, sequence, width]");
  if (part[1] % chunks != 0)
    fail(Code::invalid_argument, "overlap_chunks is ", chunks, ", which does not divide the ", part[1],
         " tokens of the sequence that each rank has");
  return part;
}

SequenceChunks::SequenceChunks(const Shape& part, int ranks, int chunks)
    : batch_(checked(part, chunks)[0]),
      ranks_(ranks),
      chunks_(chunks),
      tokens_(part[1] / chunks),
      width_(part[2]) {}

Tensor SequenceChunks::of_value(const Tensor& value, int chunk) const {
  const Tensor value_BWKND = value.reshape({batch_, ranks_, chunks_, tokens_, width_});
  return value_BWKND.slice(2, chunk, chunk + 1).transpose(0, 1);
}

Tensor SequenceChunks::of_part(const Tensor& part, int chunk) const {
  return part.reshape({batch_, chunks_, tokens_, width_}).slice(1, chunk, chunk + 1);
}

Tensor SequenceChunks::like_value(const Tensor& packed) const {
  return packed.reshape({ranks_, batch_, 1, tokens_, width_});
}

Tensor SequenceChunks::like_part(const Tensor& packed_piece) const {
  return packed_piece.reshape({batch_, 1, tokens_, width_});
}

std::vector<RowRange> SequenceChunks::rows(int chunk) const {
  std::vector<RowRange> all;
  for (int64_t rank = 0; rank < ranks_; ++rank)
    for (int64_t row = 0; row < batch_; ++row) {
      const int64_t first = ((row * ranks_ + rank) * chunks_ + chunk) * tokens_;
      all.push_back({first, first + tokens_});
    }
  return all;
}

ArrivingSequence::ArrivingSequence(Context& ctx, const ChunkedMove& gather, const Tensor& part,
                                   const Tensor& value)
    : gather_(*gather.move), chunks_(part.shape(), gather.ranks, gather.chunks), value_(value) {
  for (int c = 0; c < chunks_.count(); ++c) {
    Tensor piece = chunks_.of_part(part, c);
    if (!piece.contiguous()) {
      piece = ctx.temporaries.allocate(part.dtype(), piece.shape());
      ctx.ops.cast(chunks_.of_part(part, c), piece, ctx.stream);
    }
    started_.push_back(gather_.start_forward(ctx, piece.reshape(chunks_.packed_piece()),
                                             ctx.temporaries.allocate(part.dtype(), chunks_.packed())));
  }
}

bool ArrivingSequence::holds(const Tensor& x) const {
  return taken_ < chunks_.count() && x.buffer() == value_.buffer() &&
         x.byte_offset() == value_.byte_offset() && x.shape() == value_.shape();
}

std::vector<RowRange> ArrivingSequence::next(Context& ctx) {
  if (taken_ == chunks_.count()) return {};
  const Tensor landed = gather_.finish(ctx, started_[static_cast<size_t>(taken_)]);
  ctx.ops.cast(chunks_.like_value(landed), chunks_.of_value(value_, taken_), ctx.stream);
  return chunks_.rows(taken_++);
}

void sum_in_chunks(Context& ctx, const ChunkedMove& sum, const Tensor& part, const RowsProduct& product) {
  const SequenceChunks chunks(part.shape(), sum.ranks, sum.chunks);
  const StackScope scope(ctx.temporaries);
  std::vector<Redistribute::Started> started;
  for (int c = 0; c < chunks.count(); ++c) {
    const Tensor own = ctx.temporaries.allocate(part.dtype(), chunks.packed());
    int64_t at = 0;
    for (const RowRange& rows : chunks.rows(c)) {
      const int64_t end = at + rows.last - rows.first;
      product(rows, own.slice(0, at, end));
      at = end;
    }
    const Tensor piece = chunks.of_part(part, c);
    started.push_back(sum.move->start_forward(
        ctx, own,
        piece.contiguous() ? piece.reshape(chunks.packed_piece())
                           : ctx.temporaries.allocate(part.dtype(), chunks.packed_piece())));
  }
  for (int c = 0; c < chunks.count(); ++c) {
    const Tensor summed = sum.move->finish(ctx, started[static_cast<size_t>(c)]);
    const Tensor piece = chunks.of_part(part, c);
    if (!piece.contiguous()) ctx.ops.cast(chunks.like_part(summed), piece, ctx.stream);
  }
}

}  // namespace gangway

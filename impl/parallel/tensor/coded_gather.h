// The gather of a sequence that only linear layers in FP8 read (nn/coded_input.h). Each rank makes the codes
// of its tokens and sends them in place of the values: a byte each, and the scales where each row has its
// own. They are the codes that the layers would make of the gathered values, bit for bit: the scale of a row
// follows from that row alone, and the ranks join the scale of a whole input before they make codes.
//
// A frame keeps this rank's values. Backward gathers codes again, those for the gradients of the weights:
// each rank transposes its own, and where rows have scales, the ranks join those of the columns.
//
// Letters: B batch, S sequence, s this rank's part of it, I inputs of the layers, T = B S.
//
// Thread rule: that of a module; collective over the gang.
#pragma once

#include <memory>
#include <vector>

#include "nn/coded_input.h"
#include "parallel/tensor/chunks.h"

namespace gangway {

class CodedGather {
 public:
  using GatherPtr = std::shared_ptr<Redistribute>;
  // `codes` and `scales` gather [B, s, .] along the sequence; they are two because each remembers the plan of
  // its last shape. `columns` gathers [I, B, s].
  CodedGather(GatherPtr codes, GatherPtr scales, GatherPtr columns, std::shared_ptr<Fp8ScaleJoin> join)
      : codes_(std::move(codes)),
        scales_(std::move(scales)),
        columns_(std::move(columns)),
        join_(std::move(join)) {}

  // Returns whether `part` is a part of a sequence, with tokens.
  static bool takes(const Tensor& part) { return part.rank() == 3 && part.count() != 0; }

  // Starts the gather for layers_that_share_codes(). Without `chunks` it also ends it. The codes lie in the
  // context's temporaries; with chunks, the caller keeps what this takes of them until all have been taken.
  // `producer` makes the transposed codes in backward, by recompute().
  std::unique_ptr<CodedInput> start(Context& ctx, const std::vector<Linear*>& layers, const Tensor& part,
                                    const ChunkedMove* chunks, Frame* frame, Module& producer);
  Tensor recompute(Context& ctx, Frame& frame, int index, const Fp8Products& products, Module& producer);

 private:
  const GatherPtr codes_, scales_, columns_;
  const std::shared_ptr<Fp8ScaleJoin> join_;
};

}  // namespace gangway

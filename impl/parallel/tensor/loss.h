// Cross-entropy where each rank of a gang has the output weight's rows of a part of the vocabulary. Tokens go in chunks,
// so that logits never exist whole, and one small collective is made for each chunk.
//
// Two methods, which differ in what they exchange for a chunk of C tokens, W ranks, V ids in all:
//   statistics   3 C numbers of each rank (maximum, sum of exponentials, logit of the label): loss parallelism
//   logits       C V / W logits of each rank
//
// Before it the tokens are brought together, if they come as parts of the sequence. After it the gradient of the tokens,
// of which each rank has a part, is summed and goes back the same way. All ranks have the same labels and get the same
// loss.
//
// Thread rule: that of a head; collective over the gang.
#pragma once

#include <memory>

#include "nn/loss.h"
#include "parallel/tensor/boundaries.h"

namespace gangway {

class SplitLoss final : public HeadLoss {
 public:
  enum class Exchange : uint8_t { statistics, logits };

  // `input`: how the tokens come -> varying.
  SplitLoss(GangPtr gang, Channel channel, RedistributePtr input, Exchange exchange);

  const char* name() const override;
  void check(const Spec& y, const Spec& labels) override;
  void run(Context& ctx, const HeadLossArgs& args) override;

 private:
  struct Chunk {
    Tensor x_CD, logits_CV, labels_C, dx_CD;
  };
  void run_chunks(Context& ctx, const HeadLossArgs& args) const;
  void run_chunk(Context& ctx, const HeadLossArgs& args, const Chunk& chunk, bool accumulate) const;
  // Every rank's [3, C]; `logits` become what loss_part leaves of them.
  Tensor statistics_of_all(Context& ctx, Chunk& chunk) const;
  Tensor exchange(Context& ctx, const Tensor& own) const;  // [W, ...] of each rank's
  int64_t first_id(int rank, const Tensor& logits_CV) const { return rank * logits_CV.dim(1); }

  const GangPtr gang_;
  const Channel channel_;
  const RedistributePtr input_;
  const Exchange exchange_;
};

}  // namespace gangway

// Cross-entropy when the rows of the output weight are split over a gang, so that each rank has a part of the
// vocabulary. The parts may differ in size. Tokens are computed in chunks, so that the logits of all tokens
// never exist at the same time. Each chunk needs one small collective.
//
// There are two methods, which differ in what each rank sends for a chunk of C tokens:
//   statistics   3 C numbers: maximum, sum of exponentials, logit of the label ("loss parallel")
//   logits       the logits of its ids, C times their number
//
// If the tokens come as parts of the sequence, they are gathered first. Each rank then computes one addend of
// the gradient of the tokens; the addends are summed and go back the same way. All ranks have the same labels
// and get the same loss.
//
// Thread rule: that of a head; collective over the gang.
#pragma once

#include <memory>
#include <vector>

#include "nn/loss.h"
#include "parallel/tensor/boundaries.h"

namespace gangway {

class SplitLoss final : public HeadLoss {
 public:
  enum class Exchange : uint8_t { statistics, logits };

  // `input` redistributes the tokens from the layout in which they come to Varying (plan.h). Rank r has the
  // ids
  // [bounds[r], bounds[r + 1]).
  SplitLoss(GangPtr gang, Channel channel, RedistributePtr input, Exchange exchange,
            std::vector<int64_t> bounds);

  const char* name() const override;
  void check(const Spec& y, const Spec& labels) override;
  void run(Context& ctx, const HeadLossArgs& args) override;

 private:
  struct Chunk {
    Tensor x_CD, logits_CV, labels_C, dx_CD;
    LossTerms terms;
  };
  void run_chunks(Context& ctx, const HeadLossArgs& args) const;
  void run_chunk(Context& ctx, const HeadLossArgs& args, const Chunk& chunk, bool accumulate) const;
  // The statistics [W, 3, C] of all ranks, and with label smoothing the sums of all logits [C].
  struct Statistics {
    Tensor all, logit_sums;
  };
  // `chunk.logits_CV` becomes what loss_part makes of it (ops.h).
  Statistics statistics_of_all(Context& ctx, Chunk& chunk) const;
  static Tensor sum_of_rows(Context& ctx, const Tensor& x);
  Tensor exchange(Context& ctx, const Tensor& own) const;  // [W, ...], gathered from all ranks
  // The logits [C, V] of each rank, gathered from all ranks.
  Values exchange_logits(Context& ctx, const Tensor& own) const;
  void gather(Context& ctx, const Tensor& own, const Tensor& all, const std::vector<size_t>& counts) const;
  int64_t first_id(int rank) const { return bounds_[static_cast<size_t>(rank)]; }
  int64_t id_count(int rank) const { return first_id(rank + 1) - first_id(rank); }

  const GangPtr gang_;
  const Channel channel_;
  const RedistributePtr input_;
  const Exchange exchange_;
  const std::vector<int64_t> bounds_;
};

}  // namespace gangway

// The sums of a norm whose weight is split over a gang, so that each rank has a part of every row.
//
// Thread rule: that of the norm; collective over the gang.
#pragma once

#include "nn/rmsnorm.h"
#include "parallel/tensor/boundaries.h"

namespace gangway {

class SplitRowSums final : public RowSums {
 public:
  SplitRowSums(const GangPtr& gang, Channel channel);

  const char* name() const override { return "split"; }
  void sum(Context& ctx, const Tensor& sums) override;

 private:
  const RedistributePtr sum_;
};

}  // namespace gangway

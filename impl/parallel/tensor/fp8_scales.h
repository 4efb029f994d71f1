// The scales of what each rank of a gang has a part of: rows, columns, an input (nn/fp8.h).
//
// Thread rule: that of the layer; collective over the gang.
#pragma once

#include "gang/gang.h"
#include "nn/fp8.h"

namespace gangway {

class SplitFp8Scales final : public Fp8ScaleJoin {
 public:
  SplitFp8Scales(GangPtr gang, Channel channel) : gang_(std::move(gang)), channel_(channel) {}
  void join(Context& ctx, const Tensor& scale) override;

 private:
  const GangPtr gang_;
  const Channel channel_;
};

}  // namespace gangway

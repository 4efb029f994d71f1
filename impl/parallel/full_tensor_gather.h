// Gathers the shards of a parameter, or of its gradient, into the full tensor on every rank. It undoes the
// splits of the parameter's layout one by one, the innermost first.
//
// Thread rule: one thread at a time.
#pragma once

#include <vector>

#include "mesh/gangs.h"
#include "nn/parameter.h"

namespace gangway {

class FullTensorGather {
 public:
  // Local. Allocates all the memory that run() needs.
  FullTensorGather(const Gangs& gangs, const Parameter& parameter, DType dtype);
  // Collective over the axes that split the parameter. `own` is this rank's shard; where FSDP splits the
  // parameter, the padding lies behind it in memory. Returns a tensor of the full shape in memory of this
  // object.
  Tensor run(Ops& ops, const Tensor& own, Stream& stream);

 private:
  // One all-gather over one axis, of pieces that are padded to the size of the greatest. If one rank has all
  // rows, it is a broadcast.
  struct Stage {
    GangPtr gang;
    const Placement* placement;
    int only = -1;  // the rank that has all rows and broadcasts them; -1: several ranks have rows
    Tensor piece;   // the padded input; absent if the shard lies with its padding already
    Shape padded;   // of one piece
    Tensor pieces;  // [ranks, ...padded]
    Tensor joined;  // a view of `pieces` if these lie in the order of the rows
  };
  static void run(const Stage& stage, const Collective& record, Stream& stream);
  Tensor from_holder(Ops& ops, const Stage& stage, const Tensor& own, Stream& stream) const;
  Stage stage_of(const Gangs& gangs, const Placement& placement, const Shape& outer, int index,
                 bool from_host) const;

  DType dtype_;
  std::vector<Stage> stages_;  // innermost first
  Tensor copy_;                // the result if nothing splits the parameter
};

}  // namespace gangway

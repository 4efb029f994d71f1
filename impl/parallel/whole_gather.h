// Joins what the ranks own of a parameter, or of its gradient, into the whole tensor on every rank, as the parameter's
// layout says: the innermost split first.
//
// Thread rule: one thread at a time.
#pragma once

#include <vector>

#include "mesh/gangs.h"
#include "nn/parameter.h"

namespace gangway {

class WholeGather {
 public:
  // Local: takes all the memory that run needs.
  WholeGather(const Gangs& gangs, const Parameter& parameter, DType dtype);
  // Collective over the axes that split. `own`: the parameter's box, which lies with its padding where a split at rest
  // made it. A new tensor of the whole shape.
  Tensor run(Ops& ops, const Tensor& own, Stream& stream);

 private:
  // One all-gather, of pieces that are padded to the greatest.
  struct Stage {
    GangPtr gang;
    const Placement* placement;
    int only = -1;  // the rank that has all rows and gives them to the others; -1: several have some
    Tensor piece;   // absent: the piece lies padded already
    Shape padded;   // of one piece
    Tensor pieces;  // [ranks, ...padded]
    Tensor joined;  // a view of `pieces` where they lie one after the other
  };
  static void run(const Stage& stage, const Collective& record, Stream& stream);
  Tensor from_holder(Ops& ops, const Stage& stage, const Tensor& own, Stream& stream) const;
  Stage stage_of(const Gangs& gangs, const Placement& placement, const Shape& outer, int index,
                 bool from_host) const;

  DType dtype_;
  std::vector<Stage> stages_;  // innermost first
  Tensor copy_;                // without a stage
};

}  // namespace gangway

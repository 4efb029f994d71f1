#include "checkpoint/writing_rank.h"

namespace gangway {

bool writes_rows(const Layout& layout, const Gangs& gangs) {
  AxisSet split = 0;
  for (const Placement& placement : layout)
    if (placement.kind == Placement::Kind::shard) split |= parse_axes(placement.axis);
  for (const Axis axis : {Axis::pp, Axis::dp_replicate, Axis::dp_shard, Axis::cp, Axis::tp})
    if ((split & axis_bit(axis)) == 0 && gangs.coordinate(axis) != 0) return false;
  return true;
}

}  // namespace gangway

#include "parallel/fsdp/whole_values.h"

namespace gangway {

void WholeValues::allocate() {
  GroupValues::allocate();
  own_ = zeroed(place_.rest(), packing_.bytes.own);
}

Tensor WholeValues::own_rows(const PackedParameter& p) const { return own_box(own_, p.own_at, p.compute, p); }

void WholeValues::count(MemoryUse& use) const {
  GroupValues::count(use);
  count_private_rows(use);
}

}  // namespace gangway

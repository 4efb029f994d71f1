// Token ids and labels that come from outside: refused where they are outside their range, once, when they are taken.
// Layers do not look at them again: an operation gives NaN for an id that it has no row for.
//
// Thread rule: that of the module.
#pragma once

#include <vector>

#include "nn/module.h"

namespace gangway {

// Of one tensor of ids, over those that are not ignored; none: highest below lowest.
struct FoundIds {
  int64_t lowest = 0, highest = -1, count = 0;
};

// Looks at each tensor that a rule names: one wait for the device for all of them, none in memory of the host. Others,
// and all on a meta device, are left as they are above. INVALID_ARGUMENT: an id outside its range.
std::vector<FoundIds> check_ids(Context& ctx, std::span<const IdRule> rules, std::span<const Tensor> values);

}  // namespace gangway

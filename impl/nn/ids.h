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

// What the device finds, before the host has read it.
struct IdLook {
  std::vector<IdRule> rules;  // of each tensor; without a name: it is not looked at
  Tensor found;               // i64 [n, 3], of those that are; absent: none is
};
// Puts the look on the stream; nothing on a meta device. `found` lies in the temporaries.
IdLook look_at_ids(Context& ctx, std::span<const IdRule> rules, std::span<const Tensor> values);
// Of each tensor; those that were not looked at are as above. `found`: the look's, in memory of the host.
// INVALID_ARGUMENT: an id outside its range.
std::vector<FoundIds> judge(const IdLook& look, const Tensor& found);

// Both at once. Looks at each tensor that a rule names: one wait for the device for all of them, none in memory of the host. Others,
// and all on a meta device, are left as they are above. INVALID_ARGUMENT: an id outside its range.
std::vector<FoundIds> check_ids(Context& ctx, std::span<const IdRule> rules, std::span<const Tensor> values);

}  // namespace gangway

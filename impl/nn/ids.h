// Checks the range of token ids and labels that a caller passes. They are checked once, where the library
// receives them; layers do not check them again. An operation gives NaN for an id that is outside its table.
//
// Thread rule: that of the module.
#pragma once

#include <vector>

#include "nn/module.h"

namespace gangway {

// Range and number of the ids of one tensor that are not the ignored value. If there are none, highest is
// below lowest.
struct IdRange {
  int64_t lowest = 0, highest = -1, count = 0;
};

// A range check that runs on the device, before the host has read its result.
struct PendingIdCheck {
  std::vector<IdRule> rules;  // one for each tensor; a rule without a name: the tensor is not checked
  Tensor found;  // i64 [n, 3]: lowest, highest and count of each checked tensor; absent: none is checked
};
// Puts the range check of the tensors that a rule names on the stream; on a meta device it checks none.
// `found` lies in the context's temporaries.
PendingIdCheck start_id_check(Context& ctx, std::span<const IdRule> rules, std::span<const Tensor> values);
// Returns the range of each tensor; a tensor that was not checked has a default IdRange. `found`: the
// contents of check.found in host memory. INVALID_ARGUMENT: an id outside its range.
std::vector<IdRange> finish_id_check(const PendingIdCheck& check, const Tensor& found);

// start_id_check, then finish_id_check. The host waits once for the device, and not at all if the device's
// memory is the host's. INVALID_ARGUMENT: an id outside its range.
std::vector<IdRange> check_ids(Context& ctx, std::span<const IdRule> rules, std::span<const Tensor> values);

}  // namespace gangway

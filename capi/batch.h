// Reads a gw_batch, for every call that takes one.
//
// Thread rule: that of the stream.
#pragma once

#include <gangway/train.h>

#include "train/types.h"

namespace gangway::capi {

// The tensors are as those of tensors_of (module_handle.h).
Batch batch_of(const gw_batch* batch, Stream& stream);

}  // namespace gangway::capi

// The arithmetic that the engines for device memory need besides NCCL. The module passes it to them, because
// the layer of gangs does not know operations.
//
// Thread rule: pure functions; the work is ordered on the stream.
#pragma once

#include <cstddef>

#include "base/dtype.h"
#include "device/device.h"

namespace gangway::nccl {

// Computes y += x for `count` elements of a floating dtype, in memory of the stream's device.
using Add = void (*)(DType dtype, const void* x, void* y, size_t count, Stream& stream);

}  // namespace gangway::nccl

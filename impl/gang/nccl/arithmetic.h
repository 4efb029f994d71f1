// What engines of device memory compute besides NCCL: given by the module, as gangs do not know operations.
// Thread rule: pure functions; ordered on the stream.
#pragma once

#include <cstddef>

#include "base/dtype.h"
#include "device/device.h"

namespace gangway::nccl {

// y += x, `count` elements of a floating dtype, in memory of the stream's device.
using Add = void (*)(DType dtype, const void* x, void* y, size_t count, Stream& stream);

}  // namespace gangway::nccl

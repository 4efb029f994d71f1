// A device with shapes and byte counts, but without memory or compute: every block has null data. It runs the
// same code as a real device, so the byte counts of a plan equal those of a run.
//
// Thread rule: a Device's (device/device.h).
#pragma once

#include <memory>

#include "device/device.h"

namespace gangway::meta {

std::shared_ptr<Device> make_meta_device();

}  // namespace gangway::meta

// Shapes and bytes without memory or compute: every block has null data. Runs the same code as a real device, so that
// a plan's byte counts are those of the run. Thread rule: a Device's (device/device.h).
#pragma once

#include <memory>

#include "device/device.h"

namespace gangway::meta {

std::shared_ptr<Device> make_meta_device();

}  // namespace gangway::meta

// A device with shapes and byte counts, but without memory or compute: every block has null data. It runs the
// same code as a real device, so the byte counts of a plan equal those of a run. "meta" plans for CPUs, and
// "meta:cuda" for GPUs, where some operations take other temporaries.
//
// Thread rule: a Device's (device/device.h).
#pragma once

#include <memory>
#include <string>

#include "device/device.h"

namespace gangway::meta {

// `name` is "meta" or kMetaForGpus (device/gpu_plans.h).
std::shared_ptr<Device> make_meta_device(const std::string& name);

}  // namespace gangway::meta

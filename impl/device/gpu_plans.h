// Which devices take the memory of a GPU's run: GPUs, and the meta device that plans for them. Some
// operations take larger temporaries there than on a CPU.
//
// Thread rule: pure functions.
#pragma once

#include "device/device.h"

namespace gangway {

// The name of the meta device that plans for GPUs. "meta" plans for CPUs.
inline constexpr char kMetaForGpus[] = "meta:cuda";

inline bool is_or_plans_for_gpu(const Device& device) {
  return device.kind() == DeviceKind::cuda ||
         (device.kind() == DeviceKind::meta && device.name() == kMetaForGpus);
}

}  // namespace gangway

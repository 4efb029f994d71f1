// The CPU as a Device: host memory aligned to 64 bytes, a pool of threads, and a stream that runs its work at
// once.
//
// Thread rule: a Device's (device/device.h).
#pragma once

#include <memory>

#include "device/cpu/pool.h"
#include "device/device.h"

namespace gangway::cpu {

class CpuDevice : public Device {
 public:
  virtual Pool& pool() = 0;
};

std::shared_ptr<Device> make_cpu_device(const DeviceOptions& options);

}  // namespace gangway::cpu

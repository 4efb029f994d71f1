// The CPU as a Device: 64-byte aligned host memory, a pool of threads, a stream that runs at once.
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

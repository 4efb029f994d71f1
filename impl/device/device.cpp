#include "device/device.h"

#include "device/cpu/cpu_device.h"
#include "device/meta/meta_device.h"

namespace gangway {

std::shared_ptr<Device> make_device(const std::string& name, const DeviceOptions& options) {
  if (name == "cpu") return cpu::make_cpu_device(options);
  if (name == "meta") return meta::make_meta_device();
  if (name == "cuda" || name.starts_with("cuda:"))
    fail(Code::not_supported, "device \"", name,
         "\": libgangway_cuda.so is not installed next to libgangway.so (this version has cpu and meta)");
  fail(Code::invalid_argument, "device \"", name, "\" is unknown (cpu, meta)");
}

}  // namespace gangway

#include <atomic>

#include "device/cuda_module.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/meta/meta_ops.h"
#include "ops/ops.h"

namespace gangway {
namespace {

std::atomic<OpsFactory> extension = nullptr;

}  // namespace

void register_ops(OpsFactory factory) { extension = factory; }

std::unique_ptr<Ops> make_ops(const std::shared_ptr<Device>& device) {
  switch (device->kind()) {
    case DeviceKind::cpu: return cpu::make_cpu_ops(device);
    case DeviceKind::meta: return meta::make_meta_ops(device);
    case DeviceKind::extension:
      if (const OpsFactory make = extension) return make(device);
      break;
    case DeviceKind::cuda: return cuda_module(device->name()).make_ops(device);
  }
  fail(Code::not_supported, "device \"", device->name(), "\" has no operations in this build");
}

std::string describe_paths(Ops& ops) {
  if (ops.device().kind() == DeviceKind::meta) return "all operations: shape checks only\n";
  if (ops.device().kind() == DeviceKind::cuda) return cuda_module(ops.device().name()).describe_paths(ops);
  return cpu::describe_cpu_paths(ops);
}

}  // namespace gangway

#include "device/device.h"

#include <map>
#include <mutex>

#include "device/cpu/cpu_device.h"
#include "device/cuda_module.h"
#include "device/meta/meta_device.h"

namespace gangway {
namespace {

struct Registry {
  std::mutex mutex;
  std::map<std::string, DeviceFactory> factories;
};

Registry& registry() {
  static auto* const registry = new Registry;
  return *registry;
}

DeviceFactory registered(const std::string& name) {
  const std::lock_guard lock(registry().mutex);
  const auto found = registry().factories.find(name.substr(0, name.find(':')));
  return found == registry().factories.end() ? nullptr : found->second;
}

}  // namespace

void register_device(const std::string& name, DeviceFactory factory) {
  const std::lock_guard lock(registry().mutex);
  registry().factories.insert_or_assign(name, factory);
}

std::shared_ptr<Device> make_device(const std::string& name, const DeviceOptions& options) {
  if (name == "cpu") return cpu::make_cpu_device(options);
  if (name == "meta" || name.starts_with("meta:")) return meta::make_meta_device(name);
  if (const DeviceFactory factory = registered(name)) return factory(name, options);
  if (name == "cuda" || name.starts_with("cuda:")) return cuda_module(name).make_device(name, options);
  fail(Code::invalid_argument, "device \"", name, "\" is unknown (cpu, cuda, meta)");
}

}  // namespace gangway

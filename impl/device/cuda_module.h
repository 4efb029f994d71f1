// The table that the loadable module for CUDA gives the core, which itself does not depend on CUDA. The core
// loads the module at the first use of a CUDA device and compares its build id. Core and module know each
// other's objects only by their abstract classes. The layers above (ops, gang) use their own entries of the
// table. A module has its own copies of the core's functions that it uses, so nothing in it may keep state
// for the core.
//
// Thread rule: any thread.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/log.h"
#include "device/device.h"

namespace gangway {

class Engine;
class Ops;
class Rank;
struct EngineOptions;

struct CudaModule {
  // The first member, so that the core can read it from a module of any other build. It must equal the
  // core's.
  const char* build_id;
  std::shared_ptr<Device> (*make_device)(const std::string& name, const DeviceOptions& options);
  std::unique_ptr<Ops> (*make_ops)(const std::shared_ptr<Device>& device);
  // Makes engines over NCCL for the ranks that this process holds (DataEngines of gang/registry.h).
  std::vector<std::shared_ptr<Engine>> (*make_data_engines)(const std::vector<std::shared_ptr<Rank>>& ranks,
                                                            std::span<const std::shared_ptr<Engine>> control,
                                                            const EngineOptions& options);
  // Returns lines on driver, devices and libraries, for gw-info.
  std::string (*describe)();
  std::string (*describe_paths)(Ops& ops);
  // Names the function that gets the module's log lines. The core calls it before it uses the module.
  void (*log_to)(LogSink sink);
  // Makes NCCL use this interface between hosts (base/interfaces.h), for gangs over several hosts. To call before
  // make_data_engines.
  void (*tell_nccl)(const std::string& interface);
};

// Loads the module, which then stays loaded. NOT_SUPPORTED: the text says what is missing. INVALID_STATE: the
// module is of another build; the text names both ids. `device` is named in the error text.
const CudaModule& cuda_module(const std::string& device);

// Returns the module's path and its description, or why it cannot be loaded.
std::string describe_cuda_module();

}  // namespace gangway

// Returns the CudaModule table. It is untyped, since base/loadable.h calls the same function of any module.
extern "C" const void* gangway_cuda_module();

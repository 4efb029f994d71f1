// What the loadable module for CUDA gives the core, which itself needs nothing of CUDA. It is loaded at the first use of a
// CUDA device, and its build is compared. Objects go both ways by their abstract classes; the layers to the right take
// their row of the table. A module has copies of the functions that it uses, so nothing in it may keep state for the core.
// Thread rule: any thread.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "device/device.h"

namespace gangway {

class Engine;
class Ops;
class Rank;
struct EngineOptions;

struct CudaModule {
  const char* build_id;  // first, so that a stranger's is still read: the core's must be the same
  std::shared_ptr<Device> (*make_device)(const std::string& name, const DeviceOptions& options);
  std::unique_ptr<Ops> (*make_ops)(const std::shared_ptr<Device>& device);
  // Engines over NCCL of the ranks that this process holds (DataEngines of gang/registry.h).
  std::vector<std::shared_ptr<Engine>> (*make_data_engines)(const std::vector<std::shared_ptr<Rank>>& ranks,
                                                            std::span<const std::shared_ptr<Engine>> control,
                                                            const EngineOptions& options);
  // Lines on driver, devices and libraries, for gw-info.
  std::string (*describe)();
  std::string (*describe_paths)(Ops& ops);
};

// NOT_SUPPORTED with what is missing; INVALID_STATE for a module of another build, with both ids. It stays loaded.
// `device`: for the error.
const CudaModule& cuda_module(const std::string& device);

// Its file and what it found, or why it cannot be loaded.
std::string describe_cuda_module();

}  // namespace gangway

// The table. Untyped, as base/loadable.h calls the function of any module.
extern "C" const void* gangway_cuda_module();

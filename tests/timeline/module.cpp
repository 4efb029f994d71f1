// A module for CUDA that gives the emulated one's table, with operations that tell what their kernels cost.
#include <dlfcn.h>

#include "base/error.h"
#include "device/cuda_module.h"
#include "support/placed.h"
#include "timeline/costed_ops.h"

namespace gangway {
namespace {

const CudaModule& emulated() {
  static const CudaModule* const module = [] {
    void* const library =
        dlopen(placed("@build@/tests/gpu_emulation/libgangway_cuda.so").c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) fail(Code::not_supported, "the emulated module: ", dlerror());
    using Table = const void* (*)();
    const auto table = reinterpret_cast<Table>(dlsym(library, "gangway_cuda_module"));
    if (table == nullptr) fail(Code::not_supported, "the emulated module has no table");
    return static_cast<const CudaModule*>(table());
  }();
  return *module;
}

std::unique_ptr<Ops> make_costed(const std::shared_ptr<Device>& device) {
  return timeline::make_costed_ops(emulated().make_ops(device));
}

}  // namespace
}  // namespace gangway

extern "C" __attribute__((visibility("default"))) const void* gangway_cuda_module() {
  using namespace gangway;
  static const CudaModule module = [] {
    CudaModule own = emulated();
    own.make_ops = make_costed;
    return own;
  }();
  return &module;
}

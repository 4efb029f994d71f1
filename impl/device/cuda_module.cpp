#include "device/cuda_module.h"

#include <mutex>

#include "base/error.h"
#include "base/loadable.h"

namespace gangway {
namespace {

constexpr char kFile[] = "libgangway_cuda.so";

Loadable open(const std::string& device) {
  return Loadable(text("device \"", device, "\""), kFile, "gangway_cuda_module");
}
const CudaModule& module_of(const Loadable& library) {
  return *static_cast<const CudaModule*>(library.table());
}

}  // namespace

const CudaModule& cuda_module(const std::string& device) {
  static std::mutex mutex;
  static const CudaModule* module = nullptr;
  const std::lock_guard lock(mutex);
  if (module == nullptr) {
    Loadable library = open(device);
    library.keep(/*global=*/false);
    module = &module_of(library);
    module->log_to(log);
  }
  return *module;
}

std::string describe_cuda_module() {
  try {
    const Loadable library = open("cuda");
    return text("device \"cuda\": ", library.path(), "\n", module_of(library).describe());
  } catch (const Error& error) {
    return text(kFile, ": ", error.message(), "\n");
  }
}

}  // namespace gangway

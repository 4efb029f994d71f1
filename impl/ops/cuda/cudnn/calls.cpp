#include "ops/cuda/cudnn/calls.h"

#include <dlfcn.h>
#include <nvrtc.h>

#include "base/error.h"
#include "base/kept_signals.h"

namespace gangway::cuda {
namespace {

constexpr char kFile[] = "libcudnn.so.9";

template <typename Function>
void find(void* library, const char* file, const char* name, Function& to) {
  to = reinterpret_cast<Function>(dlsym(library, name));
  if (to == nullptr) fail(Code::not_supported, "cuDNN: ", file, " has no ", name);
}

}  // namespace

std::string cudnn_version_text(size_t version) {
  return text(version / 10000, ".", version % 10000 / 100, ".", version % 100);
}

CudnnApi load_cudnn(const char* file) {
  const KeptSignals kept;
  void* const library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) fail(Code::not_supported, "cuDNN: ", dlerror());
  CudnnApi api{};
  find(library, file, "cudnnGetVersion", api.get_version);
  const size_t version = api.get_version();
  if (version < kOldestCudnn)
    fail(Code::not_supported, "cuDNN: ", file, " is version ", cudnn_version_text(version),
         ", older than the ", cudnn_version_text(kOldestCudnn), " that this module needs");
  find(library, file, "cudnnGetErrorString", api.get_error_string);
  find(library, file, "cudnnGetLastErrorString", api.get_last_error_string);
  find(library, file, "cudnnCreate", api.create);
  find(library, file, "cudnnDestroy", api.destroy);
  find(library, file, "cudnnSetStream", api.set_stream);
  find(library, file, "cudnnGetStream", api.get_stream);
  find(library, file, "cudnnBackendCreateDescriptor", api.create_descriptor);
  find(library, file, "cudnnBackendDestroyDescriptor", api.destroy_descriptor);
  find(library, file, "cudnnBackendSetAttribute", api.set_attribute);
  find(library, file, "cudnnBackendGetAttribute", api.get_attribute);
  find(library, file, "cudnnBackendFinalize", api.finalize);
  find(library, file, "cudnnBackendExecute", api.execute);
  return api;
}

const CudnnApi& cudnn_api() {
  static const CudnnApi loaded = load_cudnn(kFile);
  return loaded;
}

}  // namespace gangway::cuda

// The frontend calls these functions by name. Its own way to load libraries would look for a second CUDA
// runtime. Each caller has called cudnn_api() before, so none of these functions throws.
using gangway::cuda::cudnn_api;

size_t cudnnGetVersion() { return cudnn_api().get_version(); }
const char* cudnnGetErrorString(cudnnStatus_t status) { return cudnn_api().get_error_string(status); }
void cudnnGetLastErrorString(char* words, size_t bytes) { cudnn_api().get_last_error_string(words, bytes); }
cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) { return cudnn_api().create(handle); }
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) { return cudnn_api().destroy(handle); }
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  return cudnn_api().set_stream(handle, stream);
}
cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t* stream) {
  return cudnn_api().get_stream(handle, stream);
}
cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t* made) {
  return cudnn_api().create_descriptor(type, made);
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  return cudnn_api().destroy_descriptor(descriptor);
}
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count, const void* values) {
  return cudnn_api().set_attribute(descriptor, name, type, count, values);
}
cudnnStatus_t cudnnBackendGetAttribute(const cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                                       int64_t capacity, int64_t* count, void* values) {
  return cudnn_api().get_attribute(descriptor, name, type, capacity, count, values);
}
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  return cudnn_api().finalize(descriptor);
}
cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t addresses) {
  return cudnn_api().execute(handle, plan, addresses);
}

// The frontend compiles its own RMSNorm by NVRTC, which no graph here uses. These functions replace the
// library.
nvrtcResult nvrtcCreateProgram(nvrtcProgram*, const char*, const char*, int, const char* const*,
                               const char* const*) {
  return NVRTC_ERROR_PROGRAM_CREATION_FAILURE;
}
nvrtcResult nvrtcDestroyProgram(nvrtcProgram*) { return NVRTC_ERROR_INVALID_PROGRAM; }
nvrtcResult nvrtcCompileProgram(nvrtcProgram, int, const char* const*) { return NVRTC_ERROR_INVALID_PROGRAM; }
nvrtcResult nvrtcGetCUBIN(nvrtcProgram, char*) { return NVRTC_ERROR_INVALID_PROGRAM; }
nvrtcResult nvrtcGetCUBINSize(nvrtcProgram, size_t*) { return NVRTC_ERROR_INVALID_PROGRAM; }
nvrtcResult nvrtcGetProgramLog(nvrtcProgram, char*) { return NVRTC_ERROR_INVALID_PROGRAM; }
nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram, size_t*) { return NVRTC_ERROR_INVALID_PROGRAM; }

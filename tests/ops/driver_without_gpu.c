// libcuda.so.1 of a machine without a GPU, as far as cuDNN needs one to make plans for a GPU that is described to it: code can be
// loaded, but there is no device, and nothing can be started. Where the toolkit's own stub fails to load, this succeeds.
#include <stddef.h>

#define EXPORT __attribute__((visibility("default")))
enum { kSuccess = 0, kNoDevice = 100, kNotSupported = 801 };

// No header: the functions take what CUDA's callers give, and look at what they must answer.
#define SUCCEEDS(name)   \
  EXPORT int name(void); \
  int name(void) { return kSuccess; }
#define FAILS(name, code) \
  EXPORT int name(void);  \
  int name(void) { return code; }

static int something;

EXPORT int cuDriverGetVersion(int* version);
int cuDriverGetVersion(int* version) {
  *version = 13000;
  return kSuccess;
}
EXPORT int cuLibraryLoadData(void** library);
int cuLibraryLoadData(void** library) {
  *library = &something;
  return kSuccess;
}
EXPORT int cuLibraryGetKernel(void** kernel);
int cuLibraryGetKernel(void** kernel) {
  *kernel = &something;
  return kSuccess;
}
EXPORT int cuKernelGetAttribute(int* value);
int cuKernelGetAttribute(int* value) {
  *value = 0;
  return kSuccess;
}
EXPORT int cuGetErrorString(int error, const char** words);
int cuGetErrorString(int error, const char** words) {
  *words = error == kNoDevice ? "no device" : "not on this driver";
  return kSuccess;
}
EXPORT int cuGetErrorName(int error, const char** words);
int cuGetErrorName(int error, const char** words) { return cuGetErrorString(error, words); }

SUCCEEDS(cuLibraryUnload)
SUCCEEDS(cuKernelSetAttribute)
FAILS(cuInit, kNoDevice)
FAILS(cuDeviceGet, kNoDevice)
FAILS(cuDeviceGetCount, kNoDevice)
FAILS(cuDeviceGetAttribute, kNoDevice)
FAILS(cuDevicePrimaryCtxRetain, kNoDevice)
FAILS(cuDevicePrimaryCtxRelease, kNoDevice)
FAILS(cuDevicePrimaryCtxReset, kNoDevice)
FAILS(cuCtxGetCurrent, kNoDevice)
FAILS(cuCtxGetDevice, kNoDevice)
FAILS(cuCtxGetLimit, kNoDevice)
FAILS(cuCtxPushCurrent, kNoDevice)
FAILS(cuCtxPopCurrent, kNoDevice)
FAILS(cuStreamGetCtx, kNoDevice)
FAILS(cuStreamSynchronize, kNoDevice)
FAILS(cuMemcpyDtoH_v2, kNoDevice)
FAILS(cuLaunchKernel, kNoDevice)
FAILS(cuLaunchKernelEx, kNoDevice)
FAILS(cuLaunchCooperativeKernel, kNoDevice)
FAILS(cuLibraryLoadFromFile, kNotSupported)
FAILS(cuLinkCreate, kNotSupported)
FAILS(cuLinkCreate_v2, kNotSupported)
FAILS(cuLinkAddData, kNotSupported)
FAILS(cuLinkAddData_v2, kNotSupported)
FAILS(cuLinkAddFile_v2, kNotSupported)
FAILS(cuLinkComplete, kNotSupported)
FAILS(cuLinkDestroy, kNotSupported)
FAILS(cuModuleLoadData, kNotSupported)
FAILS(cuModuleLoadDataEx, kNotSupported)
FAILS(cuModuleLoadFatBinary, kNotSupported)
FAILS(cuModuleUnload, kNotSupported)
FAILS(cuModuleGetFunction, kNotSupported)
FAILS(cuModuleGetGlobal_v2, kNotSupported)
FAILS(cuFuncGetAttribute, kNotSupported)
FAILS(cuFuncSetAttribute, kNotSupported)
FAILS(cuOccupancyMaxActiveBlocksPerMultiprocessor, kNotSupported)
FAILS(cuOccupancyMaxPotentialClusterSize, kNotSupported)
FAILS(cuTensorMapEncodeTiled, kNotSupported)

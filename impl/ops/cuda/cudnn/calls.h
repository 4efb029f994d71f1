// cuDNN's functions, found when they are first needed, because the module does not link cuDNN. calls.cpp
// defines those that the frontend calls and hands the calls on.
//
// Thread rule: any thread.
#pragma once

#include <cudnn.h>

#include <string>

namespace gangway::cuda {

struct CudnnApi {
  decltype(&cudnnGetVersion) get_version;
  decltype(&cudnnGetErrorString) get_error_string;
  decltype(&cudnnGetLastErrorString) get_last_error_string;
  decltype(&cudnnCreate) create;
  decltype(&cudnnDestroy) destroy;
  decltype(&cudnnSetStream) set_stream;
  decltype(&cudnnGetStream) get_stream;
  decltype(&cudnnBackendCreateDescriptor) create_descriptor;
  decltype(&cudnnBackendDestroyDescriptor) destroy_descriptor;
  decltype(&cudnnBackendSetAttribute) set_attribute;
  decltype(&cudnnBackendGetAttribute) get_attribute;
  decltype(&cudnnBackendFinalize) finalize;
  decltype(&cudnnBackendExecute) execute;
};

// The oldest that plans were made with.
inline constexpr size_t kOldestCudnn = 91900;
std::string cudnn_version_text(size_t version);

// NOT_SUPPORTED: the file is not found, has not every function, or is too old.
CudnnApi load_cudnn(const char* file);
// libcudnn.so.9, loaded once.
const CudnnApi& cudnn_api();

}  // namespace gangway::cuda

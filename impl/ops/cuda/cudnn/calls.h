// The functions of cuDNN, looked up at their first use, because the module does not link cuDNN. calls.cpp
// defines the functions that the frontend calls, and forwards the calls.
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

// The oldest version that was tried.
inline constexpr size_t kOldestCudnn = 91900;
std::string cudnn_version_text(size_t version);

// Throws NOT_SUPPORTED if the file is not found, lacks a function, or is too old.
CudnnApi load_cudnn(const char* file);
// Returns the functions of libcudnn.so.9, which is loaded once.
const CudnnApi& cudnn_api();

}  // namespace gangway::cuda

// Makes plans of attention by cuDNN. There are three implementations, of which the build chooses one: cuDNN's
// frontend (frontend.cpp), none for a build without its headers (absent.cpp), and plain loops on the software
// GPU of the tests (tests/gpu_emulation/cudnn.cpp).
//
// - One plan serves all calls with the same graph. A run allocates nothing on the device and does not wait.
// - A CUDA graph that captured a run may be launched only while the plan exists.
// - plan() may load code into the device, so do not call it while a stream is captured.
//
// Thread rule: one thread at a time, with the same device current.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string>

#include "ops/cuda/cudnn/attention_graph.h"

namespace gangway::cuda {

class CudnnPlan {
 public:
  virtual ~CudnnPlan() = default;
  virtual size_t workspace_bytes() const = 0;
  // Throws INTERNAL with cuDNN's message.
  virtual void run(const AttentionPointers& pointers, void* workspace, cudaStream_t stream) = 0;
};

class Cudnn {
 public:
  virtual ~Cudnn() = default;
  // Throws NOT_SUPPORTED with cuDNN's message if it has no plan for the graph.
  virtual std::unique_ptr<CudnnPlan> plan(const AttentionGraph& graph) = 0;
};

struct CudnnTarget {
  int architecture = 0;    // 90: sm_90
  std::string properties;  // cuDNN's description of a GPU that is not present; empty: the current device
};

// Throws NOT_SUPPORTED if cuDNN is not built in, not found, or too old (the text has both versions), and
// INTERNAL if it does not start.
std::unique_ptr<Cudnn> open_cudnn(const CudnnTarget& target);

// Returns "cuDNN 9.19.0", or why cuDNN is not available.
std::string describe_cudnn();

}  // namespace gangway::cuda

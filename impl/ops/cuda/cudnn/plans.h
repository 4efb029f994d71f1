// Makes plans of attention. The build chooses the source: cuDNN (frontend.cpp), a build without its headers
// (absent.cpp), or plain loops on the tests' software GPU (tests/gpu_emulation/cudnn.cpp).
//
// - A plan is made once for a graph. To run it allocates nothing on the device and waits for nothing.
// - A CUDA graph that captured a run keeps the plan alive. To make a plan may load code: not while a stream is
//   captured.
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
  // INTERNAL with cuDNN's words.
  virtual void run(const AttentionPointers& pointers, void* workspace, cudaStream_t stream) = 0;
};

class Cudnn {
 public:
  virtual ~Cudnn() = default;
  // NOT_SUPPORTED with cuDNN's words: it has no plan for the graph.
  virtual std::unique_ptr<CudnnPlan> plan(const AttentionGraph& graph) = 0;
};

struct CudnnTarget {
  int architecture = 0;    // 90: sm_90
  std::string properties;  // of a GPU that is not there, as cuDNN writes them; empty: the current device
};

// NOT_SUPPORTED: not built in, not found, or too old with both versions. INTERNAL: it does not start.
std::unique_ptr<Cudnn> open_cudnn(const CudnnTarget& target);

// "cuDNN 9.19.0", or why there is none.
std::string describe_cudnn();

}  // namespace gangway::cuda

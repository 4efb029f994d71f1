// Stands in for cuDNN on the software GPU. Plans run as plain loops, late, on their stream. It refuses a run
// if an address lies outside of a block or is less aligned than cuDNN requires, or if the workspace is too
// small. On a device such a run would give wrong results.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "gpu_emulation/attention_interpreter.h"
#include "gpu_emulation/memory.h"
#include "gpu_emulation/state.h"
#include "ops/cuda/cudnn/plans.h"

namespace gangway::cuda {
namespace {

using namespace gpu_emulation;

bool is_on_device(const void* data, size_t bytes) {
  const Where place = where(data);
  return place.place == Place::device && place.device == current_device() && place.rest >= bytes;
}

class EmulatedPlan final : public CudnnPlan {
 public:
  // The workspace is that of cuDNN's deterministic backward on sm_90: scores of 16 bits. If a test lets
  // "cudnn workspace" fail, the plan claims 1 TiB.
  explicit EmulatedPlan(AttentionGraph graph) : graph_(std::move(graph)) {
    const auto& q = graph_[Operand::q].dims;
    if (graph_.backward)
      workspace_bytes_ = static_cast<size_t>(2 * q[0] * q[1] * q[2] * graph_[Operand::k].dims[2]);
    if (enter("cudnn workspace") != cudaSuccess) workspace_bytes_ = size_t{1} << 40;
  }
  size_t workspace_bytes() const override { return workspace_bytes_; }
  void run(const AttentionPointers& pointers, void* workspace, cudaStream_t stream) override {
    if (enter("cudnnBackendExecute") != cudaSuccess)
      fail(Code::internal, "cuDNN: ", graph_.text(), ": an error that was asked for");
    for (size_t o = 0; o < kOperands; ++o) {
      const OperandLayout& layout = graph_.operands[o];
      if (!layout.present) continue;
      const size_t bytes = static_cast<size_t>(extent(layout)) * item_bytes(layout.dtype);
      if (!is_on_device(pointers[o], bytes))
        fail(Code::internal, "cuDNN: ", name(static_cast<Operand>(o)), " leaves its block");
      if (reinterpret_cast<uintptr_t>(pointers[o]) % (layout.dtype == DType::f32 ? 4 : 16) != 0)
        fail(Code::internal, "cuDNN: ", name(static_cast<Operand>(o)), " is not aligned");
    }
    const size_t bytes = workspace_bytes();
    if (bytes > 0 && !is_on_device(workspace, bytes))
      fail(Code::internal, "cuDNN: the workspace is too small");
    check(enqueue(stream,
                  [graph = graph_, pointers, workspace, bytes](Runner&) {
                    if (bytes > 0) std::memset(workspace, 0xff, std::min<size_t>(bytes, 4096));
                    interpret(graph, pointers);
                  }),
          "cudnnBackendExecute");
  }

 private:
  static void check(cudaError_t error, const char* what) {
    if (error != cudaSuccess) fail(Code::internal, what, ": ", report());
  }
  const AttentionGraph graph_;
  size_t workspace_bytes_ = 0;
};

class EmulatedCudnn final : public Cudnn {
 public:
  std::unique_ptr<CudnnPlan> plan(const AttentionGraph& graph) override {
    if (enter("cudnnBackendFinalize") != cudaSuccess)
      fail(Code::not_supported, "cuDNN: ", graph.text(), ": an error that was asked for");
    return std::make_unique<EmulatedPlan>(graph);
  }
};

}  // namespace

std::unique_ptr<Cudnn> open_cudnn(const CudnnTarget&) {
  if (enter("cudnnCreate") != cudaSuccess)
    fail(Code::not_supported, describe_cudnn(), ": an error that was asked for");
  return std::make_unique<EmulatedCudnn>();
}

std::string describe_cudnn() { return "cuDNN (software GPU)"; }

}  // namespace gangway::cuda

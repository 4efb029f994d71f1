// Chooses who computes an attention call. cuDNN does if it is installed, the table in cudnn/attention_graph.h
// does not exclude the call, and its plan fits into the workspace; otherwise the own kernels do. The
// workspace of a forward is that of the stream. A backward brings its own, which a memory plan counts.
// GANGWAY_CUDNN=0 leaves everything to the own kernels. Each shape gets one plan, which is cached. The log
// says once for each device whether there is a cuDNN, and once for each shape that cuDNN has no plan for it
// that fits.
//
// Opening cuDNN and making a plan take memory and load code, which would break a capture. So while a caller
// captures a stream of the device, a shape that has no plan yet goes to the own kernels. A shape whose plan
// did not fit is asked for again by the first call with enough workspace.
//
// This header is all that the rest of the module knows of cuDNN (layers_test checks it), so that the path can
// be removed in one piece. cuda/README.md says which measurements decide about it.
//
// Thread rule: an Ops' (ops/ops.h).
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "ops/cuda/cudnn/plans.h"
#include "ops/ops.h"

namespace gangway::cuda {

class AttentionPaths {
 public:
  explicit AttentionPaths(Device& device);  // which outlives this object

  void attention(const AttentionArgs& args, Stream& stream);
  void attention_backward(const AttentionBackwardArgs& args, Stream& stream);
  // As Ops::attention_workspace_bytes. Other threads may start operations meanwhile (segments.h).
  size_t workspace_bytes(const AttentionBackwardArgs& args);

  // A number that no other object in this process has. It identifies this object in the keys of CUDA graphs,
  // because a later object may have the same address.
  uint64_t serial() const { return serial_; }

  // Returns lines for gw-info: the choice, its rules, and the path of each shape so far.
  std::string describe();

 private:
  struct Path {
    std::unique_ptr<CudnnPlan> plan;  // null: the own kernels
    std::string why;                  // why there is no plan
    size_t needs = 0;                 // bytes of workspace, of a plan that did not fit; 0: there is none
  };

  // Memory of the caller for a plan. Absent: that of the stream.
  struct Room {
    void* at = nullptr;
    size_t bytes = 0;
  };
  static Room room_of(const AttentionBackwardArgs& args);

  bool takes(const AttentionCall& call);
  bool run_by_cudnn(const AttentionCall& call, const Room& room, Stream& stream);
  Cudnn* library();
  template <typename... Parts>
  void tell(const Parts&... parts) const;
  Path choose(const AttentionGraph& graph, size_t most);

  Device& owner_;
  const int device_;
  uint64_t serial_ = 0;
  int architecture_ = 0;
  std::mutex mutex_;  // while cuDNN is opened
  std::atomic<bool> opened_ = false;
  std::unique_ptr<Cudnn> library_;
  std::string why_none_;  // why there is no library
  std::map<AttentionGraph, Path> paths_;
};

}  // namespace gangway::cuda

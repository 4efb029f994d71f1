// Chooses who computes an attention call. cuDNN does if GANGWAY_CUDNN is auto and the table in
// cudnn/attention_graph.h does not exclude the call; otherwise the own kernels do. Each shape gets one plan,
// which is cached.
//
// This header is all that the rest of the module knows of cuDNN (layers_test checks it), so that the path can
// be removed in one piece. cuda/README.md says which measurements decide about it.
//
// Thread rule: an Ops' (ops/ops.h).
#pragma once

#include <map>
#include <memory>
#include <string>

#include "ops/cuda/cudnn/plans.h"
#include "ops/ops.h"

namespace gangway::cuda {

class AttentionPaths {
 public:
  explicit AttentionPaths(int device);

  void attention(const AttentionArgs& args, Stream& stream);
  void attention_backward(const AttentionBackwardArgs& args, Stream& stream);

  // A number that no other object in this process has. It identifies this object in the keys of CUDA graphs,
  // because a later object may have the same address.
  uint64_t serial() const { return serial_; }

  // Returns lines for gw-info: the choice, its rules, and the path of each shape so far.
  std::string describe();

 private:
  struct Path {
    std::unique_ptr<CudnnPlan> plan;  // null: the own kernels
    std::string why;                  // why there is no plan
  };

  template <typename Args>
  bool run_by_cudnn(const Args& args, Stream& stream);
  Cudnn* library();
  Path choose(const AttentionGraph& graph);

  const int device_;
  uint64_t serial_ = 0;
  int architecture_ = 0;
  bool opened_ = false;
  std::unique_ptr<Cudnn> library_;
  std::string why_none_;  // why there is no library
  std::map<AttentionGraph, Path> paths_;
};

}  // namespace gangway::cuda

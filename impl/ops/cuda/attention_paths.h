// Chooses the path of an attention call: cuDNN where GANGWAY_CUDNN asks for it and the table of
// cudnn/attention_graph.h has nothing against it, else the own kernels. Plans are made once for a shape and
// kept.
//
// This header is all that the rest of the module knows of cuDNN (layers_test checks it), so that the path can
// be removed in one piece (cuda/README.md says what decides).
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

  // No other of this process has it. A graph with plans of this one is known by it, not by an address that
  // may come again.
  uint64_t serial() const { return serial_; }

  // Lines for gw-info: what is chosen, by which rules, and for the shapes so far.
  std::string describe();

 private:
  struct Path {
    std::unique_ptr<CudnnPlan> plan;  // null: the own kernels
    std::string why;                  // there is no plan
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
  std::string why_none_;  // no library
  std::map<AttentionGraph, Path> paths_;
};

}  // namespace gangway::cuda

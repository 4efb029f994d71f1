// Linear layers that read the same input, such as q_proj, k_proj and v_proj, computed as one: a product of
// the input with their weights one below the other, y = x [W1; W2; ..]^T. A GPU then has one large product to
// do in place of several that do not fill it, in forward, for the gradient of the input, which needs no sum
// of several, and for the gradients of the weights. Nothing is copied for this: it is done where the weights
// lie one after the other in memory, as in a parameter group, and the layers' results are columns of one
// tensor.
//
// Layers stay apart on a CPU, which gains nothing; with an adapter or in FP8, which are products of their
// own; and where one of them is wrapped.
//
// Thread rule: that of a module.
#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "nn/module.h"

namespace gangway {

class Linear;

class JoinedLinears {
 public:
  // The layers are these children of `owner`, which holds this object. `slot` and `task` are numbers of the
  // owner's: of the slot in which a frame keeps the input, and of the weight task.
  JoinedLinears(Module& owner, std::initializer_list<size_t> children, int slot, int task)
      : owner_(owner), children_(children), slot_(slot), task_(task) {}

  // Returns whether forward() can compute the layers of x. If it cannot, or x is wrong, the owner runs the
  // children.
  bool can_join(const Context& ctx, const Tensor& x) const;
  int64_t width(size_t i) const;  // columns of the i-th layer's output on this rank
  // Returns y [.., N], of which each layer's output is some columns, in the order of the children. x may
  // still arrive.
  Tensor forward(Context& ctx, const Tensor& x, Frame* frame) const;

  // Returns whether forward() has made the layers' outputs in this frame.
  bool joined(const Frame& frame) const;
  // The input half: takes the gradient of y and returns that of x. Pushes the task of the owner.
  Tensor backward(Context& ctx, const Tensor& dy, Frame& frame) const;
  // Runs the weight task.
  void backward_weight(Context& ctx, Frame& frame, const Tensor& dy) const;

 private:
  std::vector<Linear*> layers() const;  // empty: one is wrapped
  std::string name() const;             // in the trace

  Module& owner_;
  const std::vector<size_t> children_;
  const int slot_, task_;
};

// Returns columns [first, last) of a tensor: those of its last dim.
Tensor columns(const Tensor& x, int64_t first, int64_t last);
// Returns the contiguous tensor whose columns the parts are, from the first to the last; absent: they are
// not.
Tensor joined_columns(std::span<const Tensor> parts);

}  // namespace gangway

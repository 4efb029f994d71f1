// The weight half of a backward, as tasks that wait to run. Backward of a module returns input gradients and
// pushes the computation of its weight gradients as tasks. The input half needs the weights; the weight half
// needs only x and dy.
//
// Thread rule: that of the frame.
#pragma once

#include <cstddef>
#include <deque>

#include "tensor/tensor.h"

namespace gangway {

class Frame;
class Module;
class SavedPart;
struct Context;

class WeightTasks {
 public:
  // `index` is the module's own number of the task. `dy` lies in the gradient stack or in the memory of a
  // saved activation. The task enters `part`, unless it is null, before it runs.
  void push(Module& module, int index, const Tensor& dy, SavedPart* part) {
    tasks_.push_back({&module, index, dy, part});
  }
  size_t count() const { return tasks_.size(); }
  // Runs up to `most` tasks, the oldest first, and returns how many ran. `frame` is that in which they were
  // pushed.
  size_t run(Context& ctx, Frame& frame, size_t most);
  void clear() { tasks_.clear(); }

 private:
  struct Task {
    Module* module;
    int index;
    Tensor dy;
    SavedPart* part;
  };
  std::deque<Task> tasks_;
};

}  // namespace gangway

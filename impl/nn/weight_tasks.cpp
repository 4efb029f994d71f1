#include "nn/weight_tasks.h"

#include "nn/module.h"

namespace gangway {

size_t WeightTasks::run(Context& ctx, Frame& frame, size_t most) {
  size_t ran = 0;
  for (; ran < most && !tasks_.empty(); ++ran) {
    const Task task = tasks_.front();
    tasks_.pop_front();  // before it runs, so that a task that throws does not run again
    if (task.part != nullptr) task.part->enter(ctx.stream);
    const TraceSpan span = task.module->span(ctx, "weight gradient");
    task.module->backward_weight(ctx, frame, task.index, task.dy);
  }
  return ran;
}

}  // namespace gangway

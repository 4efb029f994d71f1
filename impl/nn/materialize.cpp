#include "nn/gradient.h"
#include "nn/module.h"

namespace gangway {

void materialize(Module& root, Ops& ops, uint64_t seed) {
  assign_full_names(root);
  Stream& stream = ops.device().stream();
  const std::shared_ptr<Allocator> memory = ops.device().allocator();
  for (const NamedParameter& named : named_parameters(root)) {
    Parameter& p = *named.parameter;
    p.row_first = 0;
    p.row_last = p.shape[0];
    p.value = p.shard = Tensor::allocate(memory, p.dtype, p.shape);
    p.grad = p.shard_grad = wants_gradient(p) ? Tensor::allocate(memory, p.dtype, p.shape) : Tensor();
    p.grad_written = p.shard_grad_written = false;
    initialize_rows(ops, stream, p, seed, 0, p.shape[0], p.value);
  }
}

}  // namespace gangway

#include "nn/gradient.h"
#include "nn/module.h"

namespace gangway {

void materialize(Module& root, Ops& ops, uint64_t seed) {
  assign_full_names(root);
  Stream& stream = ops.device().stream();
  const std::shared_ptr<Allocator> memory = ops.device().allocator();
  for (const NamedParameter& named : named_parameters(root)) {
    Parameter& p = *named.parameter;
    p.value = p.shard = Tensor::allocate(memory, p.dtype, p.shape);
    p.grad = p.shard_grad =
        wants_gradient(p) ? make_accumulator(Tensor::allocate(memory, p.dtype, p.shape)) : nullptr;
    initialize_box(ops, stream, p, seed, whole_box(p.shape), p.value);
  }
}

}  // namespace gangway

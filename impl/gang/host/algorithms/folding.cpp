#include "gang/host/algorithms/folding.h"

namespace gangway::host {

void deliver(void* out, const void* result, size_t count, DType dtype, Delivery how) {
  if (how.accumulate) return fold_kernels().add(out, result, count, dtype);
  (how.streams ? stream_bytes : copy_bytes)(out, result, count * item_bytes(dtype));
}

FoldArgs fold_of(const Op& op, const Inputs& inputs, int ranks) {
  FoldArgs args;
  args.in = inputs.data();
  args.ranks = ranks;
  args.dtype = op.c.dtype;
  args.reduce = op.c.reduce;
  return args;
}

void fold_to(FoldArgs args, size_t count, unsigned char* out, bool overlaps, Delivery how) {
  const size_t item = item_bytes(args.dtype);
  if (!overlaps && !how.accumulate && !how.streams) {
    args.count = count;
    args.out = out;
    return fold_kernels().fold(args);
  }
  alignas(kLine) unsigned char result[kFoldBlock];
  const size_t start = args.first;
  const size_t block = (how.streams ? kStreamBlock : kFoldBlock) / item;
  for (size_t at = 0; at < count; at += block) {
    args.first = start + at;
    args.count = std::min(block, count - at);
    args.out = result;
    fold_kernels().fold(args);
    deliver(out + at * item, result, args.count, args.dtype, how);
  }
}

}  // namespace gangway::host

#include "parallel/full_tensor_gather.h"

#include <algorithm>

namespace gangway {
namespace {

int64_t rows_of(const Placement& p, size_t index) { return p.bounds[index + 1] - p.bounds[index]; }

int64_t most_rows(const Placement& p) {
  int64_t most = 0;
  for (size_t i = 0; i + 1 < p.bounds.size(); ++i) most = std::max(most, rows_of(p, i));
  return most;
}

// Returns the rank that has all rows, or -1 if several ranks have rows.
int only_holder(const Placement& p) {
  for (size_t i = 0; i + 1 < p.bounds.size(); ++i)
    if (rows_of(p, i) == p.bounds.back()) return static_cast<int>(i);
  return -1;
}

// Returns whether pieces of `rows` rows, joined along dim 0, are the full tensor with all padding behind it.
bool in_sequence(const Placement& p, int64_t rows) {
  for (size_t i = 0; i < p.bounds.size(); ++i)
    if (p.bounds[i] != std::min(p.bounds.back(), static_cast<int64_t>(i) * rows)) return false;
  return p.dim == 0;
}

}  // namespace

FullTensorGather::FullTensorGather(const Gangs& gangs, const Parameter& parameter, DType dtype)
    : dtype_(dtype) {
  const Layout& layout = parameter.layout;
  for (size_t i = layout.size(); i-- > 0;) {
    if (layout[i].kind != Placement::Kind::shard || layout[i].bounds.size() == 2) continue;
    const auto outer_end = static_cast<std::ptrdiff_t>(i);
    const Layout outer(layout.begin(), layout.begin() + outer_end);
    const Box box = local_box(outer, parameter.shape, std::span(parameter.place).first(i));
    // Peers cannot read a shard on the host, so the first stage copies it. Later stages read device memory.
    const bool from_host = stages_.empty() && parameter.is_offloaded;
    stages_.push_back(stage_of(gangs, layout[i], box.shape, parameter.place[i], from_host));
  }
  if (stages_.empty()) copy_ = Tensor::allocate(gangs.root()->device().allocator(), dtype, parameter.shape);
}

FullTensorGather::Stage FullTensorGather::stage_of(const Gangs& gangs, const Placement& placement,
                                                   const Shape& outer, int index, bool from_host) const {
  const std::shared_ptr<Allocator> memory = gangs.root()->device().allocator();
  Stage stage;
  stage.gang = gangs.by_axes(placement.axis);
  stage.placement = &placement;
  stage.only = only_holder(placement);
  if (stage.only >= 0) {
    stage.joined = Tensor::allocate(memory, dtype_, outer);
    return stage;
  }
  stage.padded = outer;
  stage.padded[placement.dim] = most_rows(placement);
  if (from_host ||
      (!placement.at_rest && rows_of(placement, static_cast<size_t>(index)) != stage.padded[placement.dim]))
    stage.piece = Tensor::allocate(memory, dtype_, stage.padded);
  stage.pieces = Tensor::allocate(memory, dtype_, Shape{stage.gang->size(), stage.padded.count()});
  stage.joined = in_sequence(placement, stage.padded[placement.dim])
                     ? Tensor(stage.pieces.buffer(), 0, dtype_, outer)
                     : Tensor::allocate(memory, dtype_, outer);
  return stage;
}

Tensor FullTensorGather::run(Ops& ops, const Tensor& own, Stream& stream) {
  if (stages_.empty() && own.count() != 0) ops.cast(own, copy_, stream);
  Tensor joined = stages_.empty() ? copy_ : own;
  for (const Stage& stage : stages_) {
    const Placement& placement = *stage.placement;
    if (stage.only >= 0) {
      joined = from_holder(ops, stage, joined, stream);
      continue;
    }
    if (stage.piece && joined.count() != 0)
      ops.cast(joined, stage.piece.slice(placement.dim, 0, joined.dim(placement.dim)), stream);
    Collective c;
    c.op = CollectiveOp::all_gather;
    c.in = stage.piece ? stage.piece.raw()
                       : Tensor(joined.buffer(), joined.byte_offset(), dtype_, stage.padded).raw();
    c.out = stage.pieces.raw();
    c.count = static_cast<size_t>(stage.padded.count());
    c.dtype = dtype_;
    run(stage, c, stream);
    joined = stage.joined;
    if (joined.buffer() == stage.pieces.buffer()) continue;
    for (int r = 0; r < stage.gang->size(); ++r) {
      const auto i = static_cast<size_t>(r);
      const Tensor piece = stage.pieces.slice(0, r, r + 1).reshape(stage.padded);
      if (rows_of(placement, i) != 0 && joined.count() != 0)
        ops.cast(piece.slice(placement.dim, 0, rows_of(placement, i)),
                 joined.slice(placement.dim, placement.bounds[i], placement.bounds[i + 1]), stream);
    }
  }
  return joined;
}

void FullTensorGather::run(const Stage& stage, const Collective& record, Stream& stream) {
  const WorkPtr work = stage.gang->run(Channel::fsdp_gather, record, &stream);
  work->order(stream);
  work->order_input(stream);
}

Tensor FullTensorGather::from_holder(Ops& ops, const Stage& stage, const Tensor& own, Stream& stream) const {
  if (stage.gang->rank() == stage.only && own.count() != 0) ops.cast(own, stage.joined, stream);
  Collective c;
  c.op = CollectiveOp::broadcast;
  c.in = c.out = stage.joined.raw();
  c.count = static_cast<size_t>(stage.joined.count());
  c.dtype = dtype_;
  c.peer = stage.only;
  run(stage, c, stream);
  return stage.joined;
}

}  // namespace gangway

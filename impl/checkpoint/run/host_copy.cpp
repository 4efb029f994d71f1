#include "checkpoint/run/host_copy.h"

#include <algorithm>
#include <set>

#include "base/interrupt.h"
#include "checkpoint/pieces.h"
#include "checkpoint/run/blocks.h"

namespace gangway {
namespace {

// Copies a view of rows, converted to the file's dtype, to host memory. A view that is strided or converted
// has at most kPieceBytes, because it goes through temporaries.
void copy_view(Model& model, const Tensor& rows, DType dtype, char* to, Stream& stream) {
  if (dtype == rows.dtype() && rows.contiguous())
    return model.device().copy(to, rows.raw(), rows.bytes(), stream);
  // Temporaries are reused from piece to piece in the order of the stream.
  const StackScope scope(model.temporaries());
  const Tensor stored = model.temporaries().allocate(dtype, rows.shape());
  model.ops().cast(rows, stored, stream);
  model.device().copy(to, stored.raw(), stored.bytes(), stream);
}

// Copies elements [first, first + count) of the rows, in the file's dtype, to host memory.
void copy_elements(const SavedRows& saved, int64_t first, int64_t count, char* to, Stream& stream) {
  Model& model = *saved.model;
  const auto item = static_cast<int64_t>(item_bytes(saved.dtype));
  const bool dense = saved.rows.contiguous();
  if (dense && saved.dtype == saved.rows.dtype()) {
    const Tensor flat = saved.rows.reshape(Shape{saved.rows.count()});
    return copy_view(model, flat.slice(0, first, first + count), saved.dtype, to, stream);
  }
  // A strided view is cut into whole rows where that is possible, else into parts of a row.
  const Tensor rows = dense ? saved.rows.reshape(Shape{1, saved.rows.count()}) : saved.rows;
  const int64_t columns = rows.dim(1), most = static_cast<int64_t>(kPieceBytes) / item;
  while (count > 0) {
    const int64_t row = first / columns, column = first % columns;
    const int64_t whole = column == 0 ? std::min(count, most) / columns : 0;
    const int64_t some = std::min({columns - column, count, most});
    const Tensor part = whole > 0 ? rows.slice(0, row, row + whole)
                                  : rows.slice(0, row, row + 1).slice(1, column, column + some);
    copy_view(model, part, saved.dtype, to, stream);
    first += part.count();
    count -= part.count();
    to += part.count() * item;
  }
}

}  // namespace

void HostCopy::reserve(const SavePlan& plan) {
  const size_t needed = plan.copy_bytes + kDirectAlignment;  // data() begins somewhere in the first page
  if (needed <= bytes() || plan.own.empty()) return;
  memory_ = nullptr;  // before the larger one is taken
  memory_ = Buffer::allocate(plan.own[0].model->device().pinned_allocator(), needed);
}

char* HostCopy::data() const {
  const auto address = reinterpret_cast<uintptr_t>(memory_->data());
  return static_cast<char*>(memory_->data()) +
         (kDirectAlignment - address % kDirectAlignment) % kDirectAlignment;
}

void HostCopy::fill(const SavePlan& plan) {
  std::set<Model*> models;
  for (const SavedRows& saved : plan.own) {
    Stream& stream = saved.model->device().stream();
    if (models.insert(saved.model).second) saved.model->run().order(stream);
    copy_elements(saved, 0, saved.box.shape.count(), data() + saved.at, stream);
  }
  for (Model* const model : models) model->device().stream().synchronize();
}

void RowBlocks::each(const SavedRows& saved, const std::function<void(const Box&, const void*)>& use) {
  Model& model = *saved.model;
  Stream& stream = model.device().stream();
  model.run().order(stream);
  if (saved.rows.on_host() && is_on_host(model.device().memory_kind()) && saved.dtype == saved.rows.dtype() &&
      saved.rows.contiguous()) {
    stream.synchronize();
    return use(saved.box, saved.rows.raw());
  }
  if (block_ == nullptr) block_ = Buffer::allocate(model.device().pinned_allocator(), kBlockBytes);
  for_each_block(saved.box.shape, item_bytes(saved.dtype), [&](const Box& part, int64_t at) {
    poll_interrupt_throttled();
    copy_elements(saved, at, part.shape.count(), static_cast<char*>(block_->data()), stream);
    stream.synchronize();
    Box box = part;
    for (size_t d = 0; d < box.first.size(); ++d) box.first[d] += saved.box.first[d];
    use(box, block_->data());
  });
}

}  // namespace gangway

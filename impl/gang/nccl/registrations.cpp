#include "gang/nccl/registrations.h"

#include <algorithm>
#include <utility>

#include "gang/nccl/api.h"

namespace gangway::nccl {
namespace {

// Equal on all versions that have windows.
constexpr int kSymmetric = 1;  // NCCL_WIN_COLL_SYMMETRIC

}  // namespace

bool Registrations::make(Batch& batch, Registered how, const std::function<void()>& settle) const {
  batch.how = how;
  batch.handles.assign(batch.data.size(), nullptr);
  if (how == Registered::none) return true;
  const bool windows = how == Registered::windows;
  if (windows && api().add_window == nullptr) return false;
  if (windows) check(api().group_start(), "ncclGroupStart");
  bool made = true;
  for (size_t i = 0; i < batch.data.size(); ++i) {
    const size_t bytes = memory_->bytes_of(batch.data[i]);
    const ncclResult_t result =
        windows ? api().add_window(batch.comm, batch.data[i], bytes, &batch.handles[i], kSymmetric)
                : api().add_buffer(batch.comm, batch.data[i], bytes, &batch.handles[i]);
    made = made && (result == ncclSuccess || result == ncclInProgress);
  }
  if (windows) check(api().group_end(), "ncclGroupEnd");
  settle();  // until then NCCL writes the handles
  return made && std::none_of(batch.handles.begin(), batch.handles.end(),
                              [](const void* handle) { return handle == nullptr; });
}

void Registrations::undo(Batch& batch) const noexcept {
  for (void*& handle : batch.handles) {
    if (handle == nullptr) continue;
    if (batch.how == Registered::windows)
      api().remove_window(batch.comm, handle);
    else
      api().remove_buffer(batch.comm, handle);
    handle = nullptr;
  }
}

void Registrations::keep(Batch batch) {
  batches_.reserve(batches_.size() + 1);
  for (const void* const data : batch.data) memory_->hold(data);
  batches_.push_back(std::move(batch));
}

bool Registrations::is_freed(size_t batch) const {
  const std::vector<void*>& data = batches_[batch].data;
  return std::all_of(data.begin(), data.end(), [&](const void* one) { return memory_->is_freed(one); });
}

void Registrations::end(const std::vector<bool>& marked) noexcept {
  size_t at = 0;
  std::erase_if(batches_, [&](Batch& batch) {
    if (!marked[at++]) return false;
    undo(batch);
    drop(batch);
    return true;
  });
}

void Registrations::end(ncclComm_t comm) noexcept {
  std::erase_if(batches_, [&](Batch& batch) {
    if (batch.comm != comm) return false;
    undo(batch);
    drop(batch);
    return true;
  });
}

void Registrations::forget(ncclComm_t comm) noexcept {
  std::erase_if(batches_, [&](Batch& batch) {
    if (batch.comm != comm) return false;
    drop(batch);
    return true;
  });
}

void Registrations::drop(const Batch& batch) noexcept {
  for (const void* const data : batch.data) memory_->drop(data);
}

}  // namespace gangway::nccl

#include "gang/nccl/registrations.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "gang/nccl/api.h"

namespace gangway::nccl {
namespace {

// Equal on all versions that have windows.
constexpr int kSymmetric = 1;  // NCCL_WIN_COLL_SYMMETRIC
constexpr int kFirstThatReusesSpace = 22800;
// How NCCL 2.27 places windows, after memory of its own.
constexpr size_t kMiB = size_t{1} << 20, kPage = 2 * kMiB, kLargePage = 512 * kMiB, kFirstLarge = 72 * kPage;

size_t rounded(size_t bytes, size_t step) { return (bytes + step - 1) / step * step; }

// Keeps handles that a thread of NCCL may still write, because the communicator did not become ready. NCCL has
// no call that waits for the thread. The list is never destroyed, because the thread may outlive main().
void leave_to_nccl(std::vector<void*> handles) {
  static auto* const mutex = new std::mutex;
  static auto* const left = new std::vector<std::vector<void*>>;
  const std::lock_guard lock(*mutex);
  left->push_back(std::move(handles));
}

}  // namespace

bool Registrations::window_space_shrinks() {
  return api().add_window != nullptr && api().version < kFirstThatReusesSpace;
}

size_t Registrations::window_space_after(const Batch& batch) const {
  const auto known = window_space_.find(batch.comm);
  size_t space = known == window_space_.end() ? kLargePage : known->second;
  for (const void* const data : batch.data) {
    const size_t bytes = rounded(memory_->bytes_of(data), kPage);
    space = rounded(space, bytes >= kFirstLarge ? kLargePage : kPage) + bytes;
  }
  return space;
}

bool Registrations::make(Batch& batch, Registered how, const std::function<void()>& settle) {
  batch.how = how;
  batch.handles.assign(batch.data.size(), nullptr);
  if (how == Registered::none) return true;
  const bool windows = how == Registered::windows;
  if (windows && api().add_window == nullptr) return false;
  if (windows) window_space_[batch.comm] = window_space_after(batch);
  if (windows) check(api().group_start(), "ncclGroupStart");
  bool made = true;
  for (size_t i = 0; i < batch.data.size(); ++i) {
    const size_t bytes = memory_->bytes_of(batch.data[i]);
    const ncclResult_t result =
        windows ? api().add_window(batch.comm, batch.data[i], bytes, &batch.handles[i], kSymmetric)
                : api().add_buffer(batch.comm, batch.data[i], bytes, &batch.handles[i]);
    made = made && (result == ncclSuccess || result == ncclInProgress);
  }
  try {
    if (windows) check(api().group_end(), "ncclGroupEnd");
    settle();  // until then NCCL writes the handles
  } catch (...) {
    leave_to_nccl(std::move(batch.handles));
    throw;
  }
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
  window_space_.erase(comm);
  std::erase_if(batches_, [&](Batch& batch) {
    if (batch.comm != comm) return false;
    undo(batch);
    drop(batch);
    return true;
  });
}

void Registrations::forget(ncclComm_t comm) noexcept {
  window_space_.erase(comm);
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

#include "gang/nccl/registrations.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "device/cuda/cuda_device.h"
#include "gang/backoff.h"
#include "gang/nccl/api.h"

namespace gangway::nccl {
namespace {

// Equal on all versions that have windows.
constexpr int kSymmetric = 1;  // NCCL_WIN_COLL_SYMMETRIC
constexpr int kFirstThatReusesSpace = 22800, kFirstOverHosts = 22807;
// How NCCL 2.27 places windows, after memory of its own.
constexpr size_t kMiB = size_t{1} << 20, kPage = 2 * kMiB, kLargePage = 512 * kMiB, kFirstLarge = 72 * kPage;

size_t rounded(size_t bytes, size_t step) { return (bytes + step - 1) / step * step; }

// Keeps handles that a thread of NCCL may still write, because the communicator did not become ready on every
// rank. NCCL has no call that waits for the thread. The list is never destroyed, because the thread may
// outlive main().
void leave_to_nccl(std::vector<void*> handles) {
  static auto* const mutex = new std::mutex;
  static auto* const left = new std::vector<std::vector<void*>>;
  const std::lock_guard lock(*mutex);
  left->push_back(std::move(handles));
}

}  // namespace

bool Registrations::window_space_lasts(const Batch& batch) const {
  size_t free = 0, total = 0;
  cuda::check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return window_space_after(batch) <= total;
}

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

// A first failure ends the batch. In a group, the calls before it have failed then, too.
Vote Registrations::begin(Batch& batch, Registered how) {
  batch.how = how;
  batch.handles.assign(batch.data.size(), nullptr);
  if (how == Registered::none) return kMade;
  const bool windows = how == Registered::windows;
  if (windows && api().add_window == nullptr) return kNoHandle;
  if (windows) window_space_[batch.comm] = window_space_after(batch);
  if (windows) check(api().group_start(), "ncclGroupStart");
  ncclResult_t first = ncclSuccess;
  const auto keep_first = [&](ncclResult_t result) {
    if (first == ncclSuccess && result != ncclInProgress) first = result;
  };
  for (size_t i = 0; i < batch.data.size() && first == ncclSuccess; ++i) {
    const size_t bytes = memory_->bytes_of(batch.data[i]);
    keep_first(windows ? api().add_window(batch.comm, batch.data[i], bytes, &batch.handles[i], kSymmetric)
                       : api().add_buffer(batch.comm, batch.data[i], bytes, &batch.handles[i]));
  }
  if (windows) keep_first(api().group_end());
  return first == ncclSuccess ? kPending : vote_of(batch, first);
}

Vote Registrations::look(const Batch& batch, std::chrono::milliseconds longest) {
  const auto until = std::chrono::steady_clock::now() + longest;
  for (Backoff backoff{};;) {
    ncclResult_t state = ncclInProgress;
    check(api().get_async_error(batch.comm, &state), "ncclCommGetAsyncError");
    const Vote vote = vote_of(batch, state);
    if (vote != kPending || std::chrono::steady_clock::now() > until) return vote;
    if (!backoff.yields()) backoff.sleep();
  }
}

Vote Registrations::vote_of(const Batch& batch, ncclResult_t state) {
  if (state == ncclInProgress) return kPending;
  if (state == ncclRemoteError) check(state, "a registration");
  if (state != ncclSuccess) return static_cast<Vote>(kFailed + state);
  const bool has_all = std::none_of(batch.handles.begin(), batch.handles.end(),
                                    [](const void* handle) { return handle == nullptr; });
  return has_all ? kMade : kNoHandle;
}

Verdict verdict_of(std::span<const Vote> votes) {
  Verdict verdict;
  const auto failed = std::find_if(votes.begin(), votes.end(), [](Vote vote) { return vote >= kFailed; });
  if (failed != votes.end()) {
    verdict.is_over = true;
    verdict.failed = static_cast<int>(failed - votes.begin());
    verdict.why = static_cast<ncclResult_t>(*failed - kFailed);
    return verdict;
  }
  verdict.is_over = std::find(votes.begin(), votes.end(), kPending) == votes.end();
  verdict.is_made = std::all_of(votes.begin(), votes.end(), [](Vote vote) { return vote == kMade; });
  return verdict;
}

// From 2.28.7 on, NCCL makes windows between hosts that NVLink joins. Before, it makes them on one host, and
// gives handles of plain registrations elsewhere without a word.
bool Registrations::windows_are_plain(int hosts) { return hosts > 1 && api().version < kFirstOverHosts; }

void Registrations::remove(ncclComm_t comm, Registered how, void* handle) noexcept {
  if (handle == nullptr) return;
  if (how == Registered::windows)
    api().remove_window(comm, handle);
  else
    api().remove_buffer(comm, handle);
}

void Registrations::undo(Batch& batch) const noexcept {
  for (void* const handle : batch.handles) remove(batch.comm, batch.how, handle);
  batch.handles.clear();
}

void Registrations::leave(Batch& batch) { leave_to_nccl(std::move(batch.handles)); }

void Registrations::keep(const Batch& batch) {
  kept_.reserve(kept_.size() + batch.data.size());
  for (size_t i = 0; i < batch.data.size(); ++i) {
    memory_->hold(batch.data[i]);
    kept_.push_back({batch.comm, batch.how, batch.data[i], batch.handles[i]});
  }
}

bool Registrations::is_freed(size_t one) const { return memory_->is_freed(kept_[one].data); }

void Registrations::end(const std::vector<bool>& marked) noexcept {
  size_t at = 0;
  std::erase_if(kept_, [&](const Kept& one) {
    if (!marked[at++]) return false;
    end(one);
    return true;
  });
}

void Registrations::end(ncclComm_t comm) noexcept {
  window_space_.erase(comm);
  std::erase_if(kept_, [&](const Kept& one) {
    if (one.comm != comm) return false;
    end(one);
    return true;
  });
}

void Registrations::forget(ncclComm_t comm) noexcept {
  window_space_.erase(comm);
  std::erase_if(kept_, [&](const Kept& one) {
    if (one.comm != comm) return false;
    memory_->drop(one.data);
    return true;
  });
}

void Registrations::end(const Kept& one) noexcept {
  remove(one.comm, one.how, one.handle);
  memory_->drop(one.data);
}

}  // namespace gangway::nccl

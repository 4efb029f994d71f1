// Handles: objects of the library that callers hold by counted references. Any thread may retain and release.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/fork.h"

namespace gangway::capi {

struct Handle {
  std::atomic<int64_t> references{1};
};

template <typename H>
H* retain(H* handle) noexcept {
  if (handle != nullptr) handle->references.fetch_add(1, std::memory_order_relaxed);
  return handle;
}
// A forked child leaks on purpose, because its copies of locks and threads are not whole.
template <typename H>
void release(H* handle) noexcept {
  if (handle == nullptr || forked_child()) return;
  if (handle->references.fetch_sub(1, std::memory_order_acq_rel) == 1) delete handle;
}

}  // namespace gangway::capi

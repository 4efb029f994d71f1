// Memory of gangs. C callers have only the address of a block.
#include <gangway/gang.h>

#include <map>

#include "base/log.h"
#include "gang_handle.h"
#include "tensor_handle.h"

using namespace gangway;
using namespace gangway::capi;

namespace {

// The blocks by their addresses. It is global, because a block may outlive its gang and is freed by its
// address alone. Ranks that are threads of one process see a shared region at the same address: the region
// has one entry for each rank, and each free removes one.
struct Allocations {
  std::mutex mutex;
  std::multimap<void*, std::shared_ptr<Buffer>> blocks;
};
Allocations& allocations() {
  static Allocations* const a = new Allocations;
  return *a;
}

void return_memory(const std::shared_ptr<Buffer>& buffer, void** out_data) {
  Allocations& a = allocations();
  const std::lock_guard lock(a.mutex);
  a.blocks.emplace(buffer->data(), buffer);
  *out_data = buffer->data();
}

}  // namespace

gw_status gw_gang_alloc(gw_gang* gang, size_t bytes, void** out_data) {
  return guarded([&] {
    out(out_data, "out_data");
    Gang& g = gang_of(gang);
    return_memory(Buffer::allocate(g.allocator(), bytes > 0 ? bytes : 1), out_data);
  });
}

gw_status gw_gang_alloc_tensor(gw_gang* gang, const int64_t* shape, int32_t ndim, gw_dtype dtype,
                               gw_tensor** out_tensor) {
  return guarded([&] {
    gw_tensor*& result = out(out_tensor, "out_tensor");
    gang_of(gang);
    if (ndim < 0 || ndim > kMaxDims) fail(Code::invalid_argument, "ndim is ", ndim, ", not 0 to ", kMaxDims);
    if (ndim > 0) required(shape, "shape");
    const Shape dims(std::span<const int64_t>(shape, static_cast<size_t>(ndim)));
    // The tensor's buffer keeps the owner of the memory alive, but not the gang: releasing the gang must end
    // it, which its peers notice.
    result = new gw_tensor(Tensor::allocate(gang->gang->allocator(), dtype_of(dtype), dims), nullptr);
  });
}

void gw_gang_free(gw_gang*, void* data) {
  if (data == nullptr || forked_child()) return;
  std::shared_ptr<Buffer> last;  // declared before the lock, so that the memory is freed after unlocking
  try {
    Allocations& a = allocations();
    const std::lock_guard lock(a.mutex);
    const auto it = a.blocks.find(data);
    if (it != a.blocks.end()) {
      last = std::move(it->second);
      a.blocks.erase(it);
      return;
    }
    log(LogLevel::warning, text("gw_gang_free: ", data, " is not memory of gw_gang_alloc"));
  } catch (...) {  // out of memory for the line of the log
  }
}

gw_status gw_gang_alloc_shared(gw_gang* gang, size_t bytes, void** out_data) {
  return guarded([&] {
    out(out_data, "out_data");
    return_memory(gang_of(gang).allocate_shared(bytes > 0 ? bytes : 1).writable, out_data);
  });
}

#include "gang/nccl/api.h"

#include <dlfcn.h>

#include "base/kept_signals.h"
#include "gang/nccl/greeting.h"

namespace gangway::nccl {
namespace {

constexpr char kFile[] = "libnccl.so.2";
constexpr int kOldest = 22200;        // communicators can be aborted in a group
constexpr int kFirstWindows = 22700;  // as their documentation says

template <typename Function>
void find(void* library, const char* name, Function& to) {
  to = reinterpret_cast<Function>(dlsym(library, name));
  if (to == nullptr) fail(Code::not_supported, "engine \"nccl\": ", kFile, " has no ", name);
}

// Looks up two functions that are of use only together. If the library lacks one of them, both stay null.
template <typename First, typename Second>
void find_both(void* library, const char* first, First& to_first, const char* second, Second& to_second) {
  to_first = reinterpret_cast<First>(dlsym(library, first));
  to_second = reinterpret_cast<Second>(dlsym(library, second));
  if (to_first != nullptr && to_second != nullptr) return;
  to_first = nullptr;
  to_second = nullptr;
}

Api load() {
  const KeptSignals kept;
  void* const library = dlopen(kFile, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) fail(Code::not_supported, "engine \"nccl\": ", dlerror());
  Api api{};
  find(library, "ncclGetVersion", api.get_version);
  api.get_version(&api.version);
  if (api.version < kOldest)
    fail(Code::not_supported, "engine \"nccl\": ", kFile, " is version ", version_text(api.version),
         ", older than the ", version_text(kOldest), " that this module needs");
  find(library, "ncclGetErrorString", api.get_error_string);
  find(library, "ncclGetUniqueId", api.get_unique_id);
  find(library, "ncclCommInitRankConfig", api.init_rank);
  find(library, "ncclCommGetAsyncError", api.get_async_error);
  find(library, "ncclCommFinalize", api.finalize);
  find(library, "ncclCommDestroy", api.destroy);
  find(library, "ncclCommAbort", api.abort);
  find(library, "ncclGroupStart", api.group_start);
  find(library, "ncclGroupEnd", api.group_end);
  find(library, "ncclAllReduce", api.all_reduce);
  find(library, "ncclReduce", api.reduce);
  find(library, "ncclReduceScatter", api.reduce_scatter);
  find(library, "ncclBroadcast", api.broadcast);
  find(library, "ncclAllGather", api.all_gather);
  find(library, "ncclSend", api.send);
  find(library, "ncclRecv", api.recv);
  find_both(library, "ncclMemAlloc", api.mem_alloc, "ncclMemFree", api.mem_free);
  find_both(library, "ncclCommRegister", api.add_buffer, "ncclCommDeregister", api.remove_buffer);
  if (api.version >= kFirstWindows)
    find_both(library, "ncclCommWindowRegister", api.add_window, "ncclCommWindowDeregister",
              api.remove_window);
  return api;
}

}  // namespace

const Api& api() {
  static const Api loaded = load();
  return loaded;
}

void check(ncclResult_t result, const char* what) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  fail(Code::gang, "nccl: ", what, ": ", api().get_error_string(result));
}

}  // namespace gangway::nccl

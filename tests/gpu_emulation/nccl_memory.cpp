// NCCL's memory and its registrations. What corrupts data, hangs or leaks in NCCL is a fault here: a window
// of memory that is not of ncclMemAlloc; before 2.28, more windows than there are addresses, which NCCL never
// uses again; ranks whose windows differ in size or order, since each computes the
// places of the others' windows from its own; a deregistration while a collective is in flight, or after the
// communicator has ended; memory that is freed while it is registered.
#include <nccl.h>

#include <mutex>
#include <string>
#include <utility>

#include "gpu_emulation/memory.h"
#include "gpu_emulation/nccl_comm.h"
#include "gpu_emulation/state.h"

using namespace gpu_emulation;

namespace {

constexpr size_t kPage = 4096;  // the alignment of a window

struct Blocks {
  std::mutex mutex;
  std::map<const char*, size_t> bytes;       // of ncclMemAlloc
  std::map<const char*, int> registrations;  // of a block's address
};
Blocks& blocks() {
  static auto* const all = new Blocks;
  return *all;
}

ncclResult_t fault(int device, const std::string& words) {
  keep_fault(device, {cudaErrorLaunchFailure, "NCCL: " + words});
  return ncclInvalidUsage;
}

bool is_whole_block(const void* data, size_t bytes) {
  const std::lock_guard lock(blocks().mutex);
  const auto found = blocks().bytes.find(static_cast<const char*>(data));
  return found != blocks().bytes.end() && bytes <= found->second;
}

void count(const Registration& registration, int by) {
  const std::lock_guard lock(blocks().mutex);
  blocks().registrations[registration.data] += by;
}

void* new_handle() {
  static std::atomic<uintptr_t> last{0};
  return reinterpret_cast<void*>(++last);  // never 0
}

void* add(ncclComm& comm, const Registration& registration) {
  void* const handle = new_handle();
  comm.registrations.emplace(handle, registration);
  count(registration, 1);
  return handle;
}

ncclResult_t remove(ncclComm_t comm, void* handle, bool window) {
  enter("ncclCommDeregister");
  const int device = current_device();
  if (!is_living(comm)) return fault(device, "a buffer is deregistered after its communicator has ended");
  const auto found = comm->registrations.find(handle);
  if (found == comm->registrations.end() || found->second.is_window != window)
    return fault(device, "a buffer is deregistered that is not registered in this way");
  if (*comm->in_flight != 0)
    return fault(device, "a buffer is deregistered while a collective of its communicator is in flight");
  if (found->second.number != 0) comm->member->remove_window(found->second.number);
  count(found->second, -1);
  comm->registrations.erase(found);
  return ncclSuccess;
}

}  // namespace

uint64_t gpu_emulation::place_in_registrations(const ncclComm& comm, const void* data, bool& symmetric) {
  const auto* const at = static_cast<const char*>(data);
  uint64_t place = 0;
  for (const auto& [handle, one] : comm.registrations) {
    if (at < one.data || at >= one.data + one.bytes) continue;
    symmetric = one.symmetric;
    place = one.number == 0 ? 1 : one.number << 40 | static_cast<uint64_t>(at - one.data);
  }
  return place;
}

void gpu_emulation::forget_registrations(ncclComm& comm) {
  for (const auto& [handle, one] : comm.registrations) count(one, -1);
  comm.registrations.clear();
}

ncclResult_t ncclMemAlloc(void** data, size_t bytes) {
  if (enter(__func__) != cudaSuccess) return ncclUnhandledCudaError;
  const size_t whole = (bytes + kPage - 1) / kPage * kPage;
  *data = bytes == 0 ? nullptr : allocate_device(current_device(), whole, settings().memory);
  if (*data == nullptr) return ncclUnhandledCudaError;
  const std::lock_guard lock(blocks().mutex);
  blocks().bytes[static_cast<const char*>(*data)] = bytes;
  return ncclSuccess;
}
ncclResult_t ncclMemFree(void* data) {
  enter(__func__);
  {
    const std::lock_guard lock(blocks().mutex);
    const auto* const at = static_cast<const char*>(data);
    if (!blocks().bytes.contains(at)) return fault(current_device(), "ncclMemFree of other memory");
    if (blocks().registrations[at] != 0)
      return fault(current_device(), "memory is freed while it is registered");
    blocks().bytes.erase(at);
    blocks().registrations.erase(at);
  }
  return free_device(data) ? ncclSuccess : ncclInternalError;
}

ncclResult_t ncclCommRegister(ncclComm_t comm, void* data, size_t bytes, void** handle) {
  if (enter(__func__) != cudaSuccess) return ncclSystemError;
  if (!is_whole_block(data, bytes)) return ncclInvalidArgument;
  *handle = add(*comm, {static_cast<const char*>(data), bytes, false, 0, false});
  return ncclSuccess;
}
ncclResult_t ncclCommDeregister(ncclComm_t comm, void* handle) { return remove(comm, handle, false); }

// Never blocks. ncclCommGetAsyncError reports when all ranks have registered as many windows. Before 2.29, a
// communicator whose ranks do not reach each other's memory gets handles of plain registrations.
//
// fail_call: "ncclCommWindowRegister" fails in this call, and "a window" later, on a thread of NCCL. In both
// cases the peers wait without an end, as in NCCL.
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* data, size_t bytes, ncclWindow_t* window,
                                    int flags) {
  constexpr int kFirstThatGivesNoPlainOnes = 22900;
  *window = nullptr;
  if (enter(__func__) != cudaSuccess) return fail_group(ncclSystemError);
  if (comm->failed != ncclSuccess) return fail_group(comm->failed);
  const bool reach = settings().nccl_windows && comm->member->on_one_host();
  if (!reach && settings().nccl >= kFirstThatGivesNoPlainOnes) return ncclSuccess;
  if (!is_whole_block(data, bytes))
    return fault(comm->member->device(), "a window is not a block of ncclMemAlloc");
  const auto* const at = static_cast<const char*>(data);
  if (!reach) {
    *window = static_cast<ncclWindow_t>(add(*comm, {at, bytes, true, 0, false}));
    return ncclSuccess;
  }
  constexpr size_t kWindowPage = size_t{2} << 20;
  comm->window_space += (bytes + kWindowPage - 1) / kWindowPage * kWindowPage;
  if (settings().nccl < 22800 && comm->window_space > settings().memory)
    return fault(comm->member->device(), "windows take more address space than the device has memory");
  join_group(*comm);
  if (enter("a window") != cudaSuccess) {
    comm->failed = ncclUnhandledCudaError;
    return ncclInProgress;
  }
  const uint64_t number = comm->member->add_window(bytes, flags);
  const bool symmetric = (flags & NCCL_WIN_COLL_SYMMETRIC) != 0;
  *window = static_cast<ncclWindow_t>(add(*comm, {at, bytes, true, number, symmetric}));
  return ncclInProgress;
}
ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window) {
  return remove(comm, window, true);
}

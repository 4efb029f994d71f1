// The functions of NCCL, looked up at their first use, because the module does not link NCCL.
//
// Thread rule: any thread.
#pragma once

#include <nccl.h>

#include "base/error.h"

namespace gangway::nccl {

struct Api {
  int version = 0;  // as ncclGetVersion gives it
  decltype(&ncclGetVersion) get_version;
  decltype(&ncclGetErrorString) get_error_string;
  decltype(&ncclGetUniqueId) get_unique_id;
  decltype(&ncclCommInitRankConfig) init_rank;
  decltype(&ncclCommGetAsyncError) get_async_error;
  decltype(&ncclCommFinalize) finalize;
  decltype(&ncclCommDestroy) destroy;
  decltype(&ncclCommAbort) abort;
  decltype(&ncclGroupStart) group_start;
  decltype(&ncclGroupEnd) group_end;
  decltype(&ncclAllReduce) all_reduce;
  decltype(&ncclReduce) reduce;
  decltype(&ncclReduceScatter) reduce_scatter;
  decltype(&ncclBroadcast) broadcast;
  decltype(&ncclAllGather) all_gather;
  decltype(&ncclSend) send;
  decltype(&ncclRecv) recv;

  // Registered memory. Each function is null where the library has not all of its pair. The types are those
  // of every version, whatever the headers say: a window is a pointer.
  ncclResult_t (*mem_alloc)(void** data, size_t bytes);
  ncclResult_t (*mem_free)(void* data);
  ncclResult_t (*add_buffer)(ncclComm_t comm, void* data, size_t bytes, void** handle);  // ncclCommRegister
  ncclResult_t (*remove_buffer)(ncclComm_t comm, void* handle);
  // ncclCommWindowRegister, from 2.27 on. Where the ranks cannot reach each other's memory it gives no window
  // and no error, or (2.27 and some 2.28) a window that is no more than a registration by ncclCommRegister.
  ncclResult_t (*add_window)(ncclComm_t comm, void* data, size_t bytes, void** window, int flags);
  ncclResult_t (*remove_window)(ncclComm_t comm, void* window);

  bool registers() const { return mem_alloc != nullptr && add_buffer != nullptr; }
};

// Loads libnccl.so.2 once. Throws NOT_SUPPORTED if it is not found or is older than 2.22.
const Api& api();

// Throws GANG with NCCL's message if the call failed. A call that is still in progress has not failed.
void check(ncclResult_t result, const char* what);

}  // namespace gangway::nccl

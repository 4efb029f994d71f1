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
};

// Loads libnccl.so.2 once. Throws NOT_SUPPORTED if it is not found or is older than 2.22.
const Api& api();

// Throws GANG with NCCL's message if the call failed. A call that is still in progress has not failed.
void check(ncclResult_t result, const char* what);

}  // namespace gangway::nccl

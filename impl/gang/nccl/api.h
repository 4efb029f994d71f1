// NCCL's functions, found when they are first needed: the module has no NCCL among its needs.
// Thread rule: any thread.
#pragma once

#include <nccl.h>

#include "base/error.h"

namespace gangway::nccl {

struct Api {
  decltype(&ncclGetVersion) get_version;
  decltype(&ncclGetErrorString) get_error_string;
  decltype(&ncclGetUniqueId) get_unique_id;
  decltype(&ncclCommInitRankConfig) init_rank;
  decltype(&ncclCommGetAsyncError) get_async_error;
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

// NOT_SUPPORTED: libnccl.so.2 is not found, or is older than 2.19.
const Api& api();

// GANG, with NCCL's words. A call that is not finished yet has not failed.
void check(ncclResult_t result, const char* what);

}  // namespace gangway::nccl

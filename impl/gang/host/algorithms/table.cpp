#include "gang/host/algorithms/table.h"

namespace gangway::host {

const Algorithm& algorithm_of(CollectiveOp op) {
  switch (op) {
    case CollectiveOp::barrier: return kBarrier;
    case CollectiveOp::all_reduce: return kAllReduce;
    case CollectiveOp::all_gather: return kAllGather;
    case CollectiveOp::reduce_scatter: return kReduceScatter;
    case CollectiveOp::broadcast: return kBroadcast;
    case CollectiveOp::reduce: return kReduce;
    case CollectiveOp::gather: return kGather;
    case CollectiveOp::scatter: return kScatter;
    case CollectiveOp::all_to_all: return kAllToAll;
    case CollectiveOp::send: return kSend;
    case CollectiveOp::recv: return kRecv;
  }
  return kBarrier;
}

}  // namespace gangway::host

// NCCL between threads of one process. A collective is a task of its stream: it begins when the stream reaches it, and
// blocks the stream until all ranks have come. What real NCCL leaves undefined is a fault here: ranks that call different
// collectives, plain memory of the host, and communicators that two devices launch in different orders (real NCCL may hang then).
#include <nccl.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include "gpu_emulation/log.h"
#include "gpu_emulation/memory.h"
#include "gpu_emulation/state.h"

using namespace gpu_emulation;

namespace {

enum class Op { all_reduce, reduce, reduce_scatter, broadcast, all_gather, send, recv };

struct Call {
  Op op;
  const void* in;
  void* out;
  size_t count;
  ncclDataType_t type;
  ncclRedOp_t reduce;
  int peer;  // root, or the other end
};

size_t bytes_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8: return 1;
    case ncclFloat16:
    case ncclBfloat16: return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32: return 4;
    default: return 8;
  }
}

// All ranks' part in one collective.
struct Meeting {
  std::vector<Call> calls;
  std::vector<bool> came;
  int missing = 0;
  bool done = false;
};

// A message of a pair.
struct Message {
  Call call;
  bool done = false;
};

// What the ranks of a communicator share.
struct Group {
  explicit Group(int size) : size(size), devices(static_cast<size_t>(size), -1) {}
  const int size;
  std::mutex mutex;
  std::condition_variable changed;
  int joined = 0;
  std::vector<int> devices;
  bool aborted = false;
  std::map<uint64_t, Meeting> meetings;
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<Message>>> sends, recvs;  // by (from, to)
};

struct Groups {
  std::mutex mutex;
  uint64_t ids = 0;
  std::map<uint64_t, std::shared_ptr<Group>> by_id;
  // Of each pair of devices, what both take part in, in the order in which each launched it.
  struct Order {
    std::deque<std::pair<const Group*, uint64_t>> ahead;
    int who = -1;  // the device that is ahead
  };
  std::map<std::pair<int, int>, Order> orders;
};
Groups& groups() {
  static auto* const groups = new Groups;
  return *groups;
}

}  // namespace

struct ncclComm {
  std::shared_ptr<Group> group;
  int rank, device;
  uint64_t launched = 0, launches = 0;
};

namespace {

void fault(int device, const std::string& words) {
  keep_fault(device, {cudaErrorLaunchFailure, "NCCL: " + words});
}

// Two devices have to launch what they share in one order.
void check_order(const ncclComm& comm, uint64_t number) {
  const std::lock_guard lock(groups().mutex);
  for (const int other : comm.group->devices) {
    if (other == comm.device || other < 0) continue;
    Groups::Order& order = groups().orders[std::minmax(comm.device, other)];
    const std::pair<const Group*, uint64_t> mine = {comm.group.get(), number};
    if (order.ahead.empty() || order.who == comm.device) {
      order.who = comm.device;
      order.ahead.push_back(mine);
      continue;
    }
    if (order.ahead.front() == mine) {
      order.ahead.pop_front();
      continue;
    }
    fault(comm.device, "devices " + std::to_string(comm.device) + " and " + std::to_string(other) +
                           " launch their communicators in different orders");
  }
}

// The order of what a communicator did ends with it.
void forget(const ncclComm& comm) {
  const std::lock_guard lock(groups().mutex);
  for (auto& [pair, order] : groups().orders)
    if (pair.first == comm.device || pair.second == comm.device)
      std::erase_if(order.ahead, [&](const auto& launch) { return launch.first == comm.group.get(); });
}

template <typename T>
T fold(ncclRedOp_t op, T a, T b) {
  switch (op) {
    case ncclProd: return static_cast<T>(a * b);
    case ncclMax: return a > b ? a : b;
    case ncclMin: return a < b ? a : b;
    default: return static_cast<T>(a + b);
  }
}

float wide(__nv_bfloat16 x) { return __bfloat162float(x); }
float wide(__half x) { return __half2float(x); }
template <typename T>
T wide(T x) {
  return x;
}
void narrow(float x, __nv_bfloat16& to) { to = __float2bfloat16_rn(x); }
void narrow(float x, __half& to) { to = __float2half_rn(x); }
template <typename T>
void narrow(T x, T& to) {
  to = x;
}

template <typename T>
void reduce_as(const Meeting& meeting, size_t first, size_t count, void* out) {
  const Call& some = meeting.calls[0];
  std::vector<T> result(count);
  for (size_t i = 0; i < count; ++i) {
    auto sum = wide(static_cast<const T*>(some.in)[first + i]);
    for (size_t r = 1; r < meeting.calls.size(); ++r)
      sum = fold(some.reduce, sum, wide(static_cast<const T*>(meeting.calls[r].in)[first + i]));
    if (some.reduce == ncclAvg)
      sum = static_cast<decltype(sum)>(sum / static_cast<decltype(sum)>(meeting.calls.size()));
    narrow(sum, result[i]);
  }
  std::memcpy(out, result.data(), count * sizeof(T));
}

void reduce(const Meeting& meeting, size_t first, size_t count, void* out) {
  switch (meeting.calls[0].type) {
    case ncclInt8: return reduce_as<int8_t>(meeting, first, count, out);
    case ncclUint8: return reduce_as<uint8_t>(meeting, first, count, out);
    case ncclInt32: return reduce_as<int32_t>(meeting, first, count, out);
    case ncclUint32: return reduce_as<uint32_t>(meeting, first, count, out);
    case ncclInt64: return reduce_as<int64_t>(meeting, first, count, out);
    case ncclUint64: return reduce_as<uint64_t>(meeting, first, count, out);
    case ncclFloat16: return reduce_as<__half>(meeting, first, count, out);
    case ncclFloat32: return reduce_as<float>(meeting, first, count, out);
    case ncclFloat64: return reduce_as<double>(meeting, first, count, out);
    case ncclBfloat16: return reduce_as<__nv_bfloat16>(meeting, first, count, out);
  }
}

// All outputs are made before any is written: they may lie over inputs.
void perform(const Meeting& meeting) {
  const Call& some = meeting.calls[0];
  if (some.count == 0) return;
  const size_t size = meeting.calls.size(), bytes = some.count * bytes_of(some.type);
  std::vector<char> all(some.op == Op::all_gather || some.op == Op::reduce_scatter ? size * bytes : bytes);
  switch (some.op) {
    case Op::all_gather:
      for (size_t r = 0; r < size; ++r) std::memcpy(all.data() + r * bytes, meeting.calls[r].in, bytes);
      break;
    case Op::broadcast:
      std::memcpy(all.data(), meeting.calls[static_cast<size_t>(some.peer)].in, bytes);
      break;
    case Op::reduce_scatter: reduce(meeting, 0, size * some.count, all.data()); break;
    default: reduce(meeting, 0, some.count, all.data());
  }
  for (size_t r = 0; r < size; ++r) {
    void* const out = meeting.calls[r].out;
    if (some.op == Op::reduce_scatter)
      std::memcpy(out, all.data() + r * bytes, bytes);
    else if (some.op != Op::reduce || r == static_cast<size_t>(some.peer))
      std::memcpy(out, all.data(), all.size());
  }
}

void meet(Group& group, int rank, int device, uint64_t number, const Call& call) {
  std::unique_lock lock(group.mutex);
  Meeting& meeting = group.meetings[number];
  if (meeting.calls.empty()) {
    meeting.calls.assign(static_cast<size_t>(group.size), call);
    meeting.came.assign(static_cast<size_t>(group.size), false);
    meeting.missing = group.size;
  }
  for (int r = 0; r < group.size; ++r) {
    const Call& other = meeting.calls[static_cast<size_t>(r)];
    if (meeting.came[static_cast<size_t>(r)] &&
        (other.op != call.op || other.count != call.count || other.type != call.type ||
         other.peer != call.peer || other.reduce != call.reduce)) {
      fault(device,
            "ranks " + std::to_string(r) + " and " + std::to_string(rank) + " call different collectives");
      group.aborted = true;
    }
  }
  meeting.calls[static_cast<size_t>(rank)] = call;
  meeting.came[static_cast<size_t>(rank)] = true;
  if (--meeting.missing == 0) {
    if (!group.aborted) perform(meeting);
    meeting.done = true;
  }
  group.changed.notify_all();
  group.changed.wait(lock, [&] { return meeting.done || group.aborted; });
  // The last one to leave forgets it.
  meeting.came[static_cast<size_t>(rank)] = false;
  for (const bool here : meeting.came)
    if (here) return;
  if (meeting.done) group.meetings.erase(number);
}

// Sends and receives of one launch go on together, as real NCCL's do.
void exchange(Group& group, int rank, int device, const std::vector<Call>& calls) {
  std::vector<std::shared_ptr<Message>> mine;
  std::unique_lock lock(group.mutex);
  for (const Call& call : calls) {
    const bool sends = call.op == Op::send;
    const std::pair<int, int> pair = sends ? std::pair(rank, call.peer) : std::pair(call.peer, rank);
    auto& peers = sends ? group.recvs[pair] : group.sends[pair];
    mine.push_back(std::make_shared<Message>(Message{call}));
    if (peers.empty()) {
      (sends ? group.sends[pair] : group.recvs[pair]).push_back(mine.back());
      continue;
    }
    Message& peer = *peers.front();
    const size_t bytes = call.count * bytes_of(call.type);
    if (bytes != peer.call.count * bytes_of(peer.call.type)) {
      fault(device, "ranks " + std::to_string(pair.first) + " and " + std::to_string(pair.second) +
                        " exchange different numbers of bytes");
      group.aborted = true;
    } else {
      std::memcpy(sends ? peer.call.out : call.out, sends ? call.in : peer.call.in, bytes);
    }
    peer.done = mine.back()->done = true;
    peers.pop_front();
  }
  group.changed.notify_all();
  for (const auto& message : mine) group.changed.wait(lock, [&] { return message->done || group.aborted; });
}

struct Pending {
  ncclComm_t comm;
  cudaStream_t stream;
  Call call;
};
thread_local int depth = 0;
thread_local std::vector<Pending> pending;

// One launch. Data that the modelled mode leaves out is taken out of the calls: the ranks still meet.
void log_launch(ncclComm& comm, cudaStream_t stream, std::vector<Call*> calls) {
  constexpr const char* kNames[] = {"all_reduce", "reduce", "reduce_scatter", "broadcast", "all_gather",
                                    "send",       "recv"};
  Entry entry;
  entry.work = Work::collective;
  entry.name = kNames[static_cast<size_t>(calls.at(0)->op)];
  entry.communicator = reinterpret_cast<uint64_t>(comm.group.get());
  entry.launch = comm.launches++;
  entry.ranks = comm.group->size;
  for (Call* const call : calls) {
    const bool whole = call->op == Op::all_gather || call->op == Op::reduce_scatter;
    const size_t bytes = call->count * bytes_of(call->type) * (whole ? static_cast<size_t>(entry.ranks) : 1);
    entry.bytes += static_cast<double>(bytes);
    if (leaves_out(bytes)) call->count = 0;
  }
  log(stream, std::move(entry));
}

// The calls of one group, by communicator.
ncclResult_t launch_all(std::vector<Pending> calls) {
  while (!calls.empty()) {
    const ncclComm_t comm = calls.front().comm;
    const cudaStream_t stream = calls.front().stream;
    std::vector<Call> pairs;
    std::vector<std::pair<uint64_t, Call>> meetings;
    std::erase_if(calls, [&](const Pending& p) {
      if (p.comm != comm) return false;
      if (p.call.op == Op::send || p.call.op == Op::recv)
        pairs.push_back(p.call);
      else
        meetings.emplace_back(comm->launched++, p.call);
      return true;
    });
    for (const auto& [number, call] : meetings) check_order(*comm, number);
    std::vector<Call*> launched;
    for (Call& call : pairs) launched.push_back(&call);
    for (auto& [number, call] : meetings) launched.push_back(&call);
    log_launch(*comm, stream, std::move(launched));
    const cudaError_t error = enqueue(
        stream, [group = comm->group, rank = comm->rank, device = comm->device, pairs, meetings](Runner&) {
          if (!pairs.empty()) exchange(*group, rank, device, pairs);
          for (const auto& [number, call] : meetings) meet(*group, rank, device, number, call);
        });
    if (error != cudaSuccess) return ncclUnhandledCudaError;
  }
  return ncclSuccess;
}

ncclResult_t start(ncclComm_t comm, cudaStream_t stream, const Call& call) {
  if (enter("ncclCollective") != cudaSuccess) return ncclSystemError;
  if (comm->group->aborted) return ncclInvalidUsage;
  for (const void* const data : {call.in, static_cast<const void*>(call.out)})
    if (call.count != 0 && is_plain_host_memory(reinterpret_cast<uint64_t>(data)))
      fault(comm->device, "a buffer is plain memory of the host");
  pending.push_back({comm, stream, call});
  return depth > 0 ? ncclSuccess : launch_all(std::exchange(pending, {}));
}

}  // namespace

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess: return "no error";
    case ncclInProgress: return "in progress";
    case ncclSystemError: return "unhandled system error";
    case ncclInvalidUsage: return "invalid usage";
    default: return "internal error";
  }
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  if (enter(__func__) != cudaSuccess) return ncclSystemError;
  const std::lock_guard lock(groups().mutex);
  *id = {};
  const uint64_t number = ++groups().ids;
  std::memcpy(id->internal, &number, sizeof(number));
  return ncclSuccess;
}

// Never blocks: ncclCommGetAsyncError tells when all ranks have come. Blocking communicators are not emulated.
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (enter(__func__) != cudaSuccess) return ncclSystemError;
  if (config == nullptr || config->blocking != 0 || rank < 0 || rank >= size) return ncclInvalidArgument;
  uint64_t number = 0;
  std::memcpy(&number, id.internal, sizeof(number));
  const std::lock_guard lock(groups().mutex);
  std::shared_ptr<Group>& group = groups().by_id[number];
  if (group == nullptr) group = std::make_shared<Group>(size);
  if (group->size != size) return ncclInvalidArgument;
  const std::lock_guard group_lock(group->mutex);
  if (group->devices[static_cast<size_t>(rank)] != -1) return ncclInvalidUsage;
  for (const int device : group->devices)
    if (device == current_device()) {
      refuse(cudaErrorInvalidValue, "NCCL: two ranks of a communicator on one device");
      return ncclInvalidUsage;
    }
  group->devices[static_cast<size_t>(rank)] = current_device();
  ++group->joined;
  *comm = new ncclComm{group, rank, current_device()};
  if (group->joined == size) groups().by_id.erase(number);
  return ncclInProgress;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* result) {
  const std::lock_guard lock(comm->group->mutex);
  *result = comm->group->aborted                      ? ncclRemoteError
            : comm->group->joined < comm->group->size ? ncclInProgress
            : fault_of(comm->device) != cudaSuccess   ? ncclUnhandledCudaError
                                                      : ncclSuccess;
  return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  forget(*comm);
  delete comm;
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  {
    const std::lock_guard lock(comm->group->mutex);
    comm->group->aborted = true;
    comm->group->changed.notify_all();
  }
  forget(*comm);
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (depth == 0) return ncclInvalidUsage;
  return --depth > 0 ? ncclSuccess : launch_all(std::exchange(pending, {}));
}

ncclResult_t ncclAllReduce(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  return start(comm, stream, {Op::all_reduce, in, out, count, type, op, -1});
}
ncclResult_t ncclReduce(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                        int root, ncclComm_t comm, cudaStream_t stream) {
  return start(comm, stream, {Op::reduce, in, out, count, type, op, root});
}
ncclResult_t ncclReduceScatter(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  return start(comm, stream, {Op::reduce_scatter, in, out, count, type, op, -1});
}
ncclResult_t ncclBroadcast(const void* in, void* out, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return start(comm, stream, {Op::broadcast, in, out, count, type, ncclSum, root});
}
ncclResult_t ncclAllGather(const void* in, void* out, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return start(comm, stream, {Op::all_gather, in, out, count, type, ncclSum, -1});
}
ncclResult_t ncclSend(const void* in, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return start(comm, stream, {Op::send, in, nullptr, count, type, ncclSum, peer});
}
ncclResult_t ncclRecv(void* out, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return start(comm, stream, {Op::recv, nullptr, out, count, type, ncclSum, peer});
}

// NCCL between threads and processes of one machine, whose hosts are network namespaces. A collective is a
// task of its stream. It begins when the stream reaches it, and blocks the stream until all ranks have
// joined. What NCCL leaves undefined is a fault here: ranks that call different collectives, plain memory of
// the host, and two devices that launch their communicators in different orders (NCCL may hang then).
//
// It waits in the same places as NCCL. A wait that does not end becomes a fault whose text names the reason:
// an abort waits for all kernels of its device, also for those of communicators that are not aborted with it;
// and ncclCommDestroy without ncclCommFinalize waits for the peers on this host.
#include <net/if.h>

#include <nccl.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gpu_emulation/log.h"
#include "gpu_emulation/memory.h"
#include "gpu_emulation/nccl_comm.h"
#include "gpu_emulation/reduce.h"
#include "gpu_emulation/segment.h"
#include "gpu_emulation/state.h"

using namespace gpu_emulation;

namespace {

// The communicators of each device.
struct Living {
  std::mutex mutex;
  std::multimap<int, ncclComm_t> comms;
};
Living& living_comms() {
  static auto* const living = new Living;
  return *living;
}

// Counts a collective. Returns the earlier number of collectives of each other communicator on the same
// device.
std::vector<Launches> count_collective(ncclComm& comm) {
  const std::lock_guard lock(living_comms().mutex);
  std::vector<Launches> others;
  const auto [first, last] = living_comms().comms.equal_range(comm.member->device());
  for (auto it = first; it != last; ++it)
    if (it->second != &comm && !it->second->member->broken())
      others.push_back({it->second->member->id(), it->second->collectives});
  ++comm.collectives;
  return others;
}

// How many launches of each device have not ended.
std::array<std::atomic<int>, kMostDevices>& launches_in_flight() {
  static auto* const counts = new std::array<std::atomic<int>, kMostDevices>{};
  return *counts;
}

// Waits where NCCL waits. A wait that does not end becomes a fault of the device with the text `words`.
template <typename Happened>
void wait_or_fault(int device, const char* words, Happened&& happened) {
  constexpr std::chrono::seconds kPatience{20};
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (!happened()) {
    if (std::chrono::steady_clock::now() > until)
      return keep_fault(device, {cudaErrorLaunchFailure, std::string("NCCL: ") + words});
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void remove(ncclComm_t comm) {
  {
    const std::lock_guard lock(living_comms().mutex);
    std::erase_if(living_comms().comms, [&](const auto& entry) { return entry.second == comm; });
  }
  forget_registrations(*comm);
  delete comm;
}

struct Pending {
  ncclComm_t comm;
  cudaStream_t stream;
  Call call;
};

// NCCL chooses its interface at the first call. "=eth0" means exactly this one.
const std::string& interface() {
  static const std::string* const first = [] {
    const char* const value = std::getenv("NCCL_SOCKET_IFNAME");
    return new std::string(value == nullptr ? "" : value);
  }();
  return *first;
}
bool has_interface() { return !interface().starts_with("=") || if_nametoindex(interface().c_str() + 1) != 0; }

thread_local int depth = 0;
thread_local std::vector<Pending> pending;
thread_local std::vector<ncclComm_t> pending_aborts, with_windows;
thread_local ncclResult_t failure = ncclSuccess;  // of a call in the group

// Aborts these communicators together: all their kernels see it before the first wait.
void abort_all(const std::vector<ncclComm_t>& comms) {
  for (const ncclComm_t comm : comms) {
    comm->member->abort();
    forget_registrations(*comm);
  }
  for (const ncclComm_t comm : comms) {
    const int device = comm->member->device();
    wait_or_fault(device,
                  "an abort waits for a kernel of another communicator, which waits for a peer; abort them "
                  "in one group",
                  [&] { return launches_in_flight()[static_cast<size_t>(device)] == 0; });
    remove(comm);
  }
}

// Logs one launch. If the modelled mode leaves out the data of a call, sets its count to 0. The ranks still
// wait for each other.
void log_launch(const ncclComm& comm, uint64_t launch, cudaStream_t stream, const std::vector<Call*>& calls) {
  constexpr const char* kNames[] = {"all_reduce", "reduce", "reduce_scatter", "broadcast", "all_gather",
                                    "send",       "recv"};
  Entry entry;
  entry.work = Work::collective;
  entry.name = kNames[static_cast<size_t>(calls.at(0)->op)];
  entry.communicator = comm.member->id();
  entry.launch = launch;
  entry.ranks = comm.member->size();
  for (Call* const call : calls) {
    const bool whole = call->op == Op::all_gather || call->op == Op::reduce_scatter;
    const size_t bytes = call->count * bytes_of(call->type) * (whole ? static_cast<size_t>(entry.ranks) : 1);
    entry.bytes += static_cast<double>(bytes);
    if (leaves_out(bytes)) call->count = 0;
  }
  log(stream, std::move(entry));
}

// Launches the calls of a group, one launch for each communicator.
ncclResult_t launch_all(std::vector<Pending> calls) {
  while (!calls.empty()) {
    const ncclComm_t comm = calls.front().comm;
    const cudaStream_t stream = calls.front().stream;
    std::vector<Call> pairs;
    std::vector<Meeting> meetings;
    std::erase_if(calls, [&](const Pending& p) {
      if (p.comm != comm) return false;
      if (p.call.op == Op::send || p.call.op == Op::recv)
        pairs.push_back(p.call);
      else
        meetings.push_back({p.call, count_collective(*comm)});
      return true;
    });
    std::vector<Call*> launched;
    for (Call& call : pairs) launched.push_back(&call);
    for (Meeting& meeting : meetings) launched.push_back(&meeting.call);
    const uint64_t launch = comm->launches++;
    log_launch(*comm, launch, stream, launched);
    // Counts the launch as long as its task exists: a task does not run on a device that has a fault.
    std::atomic<int>& count = launches_in_flight()[static_cast<size_t>(comm->member->device())];
    ++count;
    ++*comm->in_flight;
    std::shared_ptr<void> in_flight(nullptr, [&count, own = comm->in_flight](void*) {
      --count;
      --*own;
    });
    const cudaError_t error =
        enqueue(stream, [in_flight, member = comm->member, launch, pairs = std::move(pairs),
                         meetings = std::move(meetings)](Runner&) mutable {
          member->run(launch, pairs, meetings);
          in_flight.reset();
        });
    if (error != cudaSuccess) return ncclUnhandledCudaError;
  }
  return ncclSuccess;
}

ncclResult_t start(ncclComm_t comm, cudaStream_t stream, Call call) {
  if (enter("ncclCollective") != cudaSuccess) return ncclSystemError;
  if (comm->member->broken()) return ncclInvalidUsage;
  if (comm->failed != ncclSuccess) return comm->failed;
  for (const void* const data : {call.in, static_cast<const void*>(call.out)})
    if (call.count != 0 && is_plain_host_memory(reinterpret_cast<uint64_t>(data)))
      keep_fault(comm->member->device(),
                 {cudaErrorLaunchFailure, "NCCL: a buffer is plain memory of the host"});
  if (call.op == Op::all_gather || call.op == Op::reduce_scatter || call.op == Op::all_reduce) {
    bool in = false, out = false;
    call.in_place = place_in_registrations(*comm, call.in, in);
    call.out_place = place_in_registrations(*comm, call.out, out);
    call.symmetric = in && out;
    const char* const name = call.op == Op::all_reduce   ? "all_reduce"
                             : call.op == Op::all_gather ? "all_gather"
                                                         : "reduce_scatter";
    if (call.symmetric)
      tally(std::string("symmetric ") + name + " of " + std::to_string(comm->member->size()));
  }
  pending.push_back({comm, stream, call});
  return depth > 0 ? ncclSuccess : launch_all(std::exchange(pending, {}));
}

}  // namespace

void gpu_emulation::join_group(ncclComm& comm) {
  if (depth > 0) with_windows.push_back(&comm);
}
ncclResult_t gpu_emulation::fail_group(ncclResult_t result) {
  if (depth > 0) failure = result;
  return result;
}

bool gpu_emulation::is_living(ncclComm_t comm) {
  const std::lock_guard lock(living_comms().mutex);
  return std::any_of(living_comms().comms.begin(), living_comms().comms.end(),
                     [&](const auto& entry) { return entry.second == comm; });
}

ncclResult_t ncclGetVersion(int* version) {
  *version = settings().nccl;
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess: return "no error";
    case ncclInProgress: return "in progress";
    case ncclSystemError: return "unhandled system error";
    case ncclUnhandledCudaError: return "unhandled cuda error";
    case ncclInvalidUsage: return "invalid usage";
    case ncclRemoteError: return "remote process exited or there was a network error";
    default: return "internal error";
  }
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  if (enter(__func__) != cudaSuccess) return ncclSystemError;
  if (!has_interface()) return ncclInvalidUsage;
  *id = Segment::make_id();
  return ncclSuccess;
}

// Never blocks. ncclCommGetAsyncError reports when all ranks have joined. There are no blocking communicators
// here.
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (enter(__func__) != cudaSuccess) return ncclSystemError;
  if (!has_interface()) return ncclInvalidUsage;
  if (config == nullptr || config->blocking != 0 || rank < 0 || rank >= size || size > kMostDevices)
    return ncclInvalidArgument;
  std::shared_ptr<Segment> segment = Segment::open(id, size);
  if (segment == nullptr) return ncclSystemError;  // the process that made the id has ended
  auto member = std::make_shared<Member>(std::move(segment), rank, current_device());
  const ncclResult_t result = member->sit_down();
  if (result != ncclInProgress) return result;
  *comm = new ncclComm;
  (*comm)->member = std::move(member);
  (*comm)->cta_policy = config->CTAPolicy;
  const std::lock_guard lock(living_comms().mutex);
  living_comms().comms.emplace(current_device(), *comm);
  return ncclInProgress;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* result) {
  *result = comm->failed != ncclSuccess                       ? comm->failed.load()
            : comm->member->told()                            ? ncclSystemError
            : comm->member->broken()                          ? ncclRemoteError
            : !comm->member->all_joined()                     ? ncclInProgress
            : !comm->member->all_have_windows()               ? ncclInProgress
            : comm->member->broken()                          ? ncclRemoteError  // by windows that differ
            : comm->finalized && !comm->member->all_left()    ? ncclInProgress
            : fault_of(comm->member->device()) != cudaSuccess ? ncclUnhandledCudaError
                                                              : ncclSuccess;
  return ncclSuccess;
}
// Never blocks. ncclCommGetAsyncError reports when all ranks have called it.
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  if (!comm->registrations.empty())
    keep_fault(comm->member->device(),
               {cudaErrorLaunchFailure, "NCCL: a communicator is finalized while buffers are registered"});
  comm->finalized = true;
  comm->member->leave();
  return ncclInProgress;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (!comm->finalized) {
    comm->member->leave();
    wait_or_fault(comm->member->device(),
                  "a communicator that was not finalized waits in ncclCommDestroy for its peers",
                  [&] { return comm->member->all_left(); });
  }
  remove(comm);
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (depth > 0)
    pending_aborts.push_back(comm);
  else
    abort_all({comm});
  return ncclSuccess;
}

void gpu_emulation_stop_link(ncclComm_t comm, int told) { comm->member->stop_link(told != 0); }
void gpu_emulation_mend_link(ncclComm_t comm) { comm->member->mend_link(); }
int gpu_emulation_cta_policy(ncclComm_t comm) { return comm->cta_policy; }
const char* gpu_emulation_interface() { return interface().c_str(); }

ncclResult_t ncclGroupStart() {
  ++depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (depth == 0) return ncclInvalidUsage;
  if (--depth > 0) return ncclSuccess;
  const std::vector<ncclComm_t> joined = std::exchange(with_windows, {});
  if (const ncclResult_t first = std::exchange(failure, ncclSuccess); first != ncclSuccess) {
    for (const ncclComm_t comm : joined) comm->failed = first;
    return first;
  }
  abort_all(std::exchange(pending_aborts, {}));
  return launch_all(std::exchange(pending, {}));
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

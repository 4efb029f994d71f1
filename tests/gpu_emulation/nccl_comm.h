// A communicator of the emulated NCCL, and what its calls share (nccl.cpp, nccl_memory.cpp).
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include <nccl.h>
#include "gpu_emulation/communicator.h"

namespace gpu_emulation {

// A buffer that is registered with a communicator.
struct Registration {
  const char* data = nullptr;
  size_t bytes = 0;
  bool is_window = false;  // by ncclCommWindowRegister
  uint64_t number = 0;     // of a window that all ranks make together, equal on them; 0: a plain registration
  bool symmetric = false;
};

}  // namespace gpu_emulation

struct ncclComm {
  std::shared_ptr<gpu_emulation::Member> member;
  bool finalized = false;                          // used by the calling thread only
  std::atomic<ncclResult_t> failed = ncclSuccess;  // after which only an abort is allowed
  int cta_policy = 0;                              // used by the calling thread only
  size_t window_space = 0;   // address space that windows have used up, before 2.28; used like finalized
  uint64_t launches = 0;     // used by the calling thread only
  uint64_t collectives = 0;  // guarded by Living::mutex
  std::shared_ptr<std::atomic<int>> in_flight = std::make_shared<std::atomic<int>>(0);  // launches
  std::map<void*, gpu_emulation::Registration> registrations;  // by handle; used by the calling thread only
};

namespace gpu_emulation {

// Returns a description of where the buffer of a call lies: 0 in memory that is not registered, else a number
// that all ranks share if they pass the same place of the same window. `symmetric` becomes whether it lies in
// a symmetric window.
uint64_t place_in_registrations(const ncclComm& comm, const void* data, bool& symmetric);
// The window of a communicator belongs to the group of calls that has begun. If a call of the group fails,
// all communicators of the group have failed.
void join_group(ncclComm& comm);
ncclResult_t fail_group(ncclResult_t result);
// Ends the registrations of a communicator that is aborted.
void forget_registrations(ncclComm& comm);
// Returns whether the handle is that of a communicator which was neither destroyed nor aborted.
bool is_living(ncclComm_t comm);

}  // namespace gpu_emulation

// A rank of a communicator of the software GPU's NCCL. Ranks are threads or processes of one host: device memory is private
// to a process, so data goes through a segment that all share (segment.h), in chunks.
//
// A rank that was killed is not noticed here: its peers wait until they abort, as real NCCL's do on one host.
//
// Thread rule: launches run in the order of their numbers, on any threads; abort comes from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <nccl.h>
#include "gpu_emulation/segment.h"

namespace gpu_emulation {

enum class Op : int { all_reduce, reduce, reduce_scatter, broadcast, all_gather, send, recv };

struct Call {
  Op op;
  const void* in;
  void* out;
  size_t count;
  ncclDataType_t type;
  ncclRedOp_t reduce;
  int peer;  // root, or the other end
};

struct Meeting {
  Call call;
  std::vector<Launches> others;
};

class Member {
 public:
  Member(std::shared_ptr<Segment> segment, int rank, int device);
  ~Member();
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  uint64_t id() const;
  int size() const;
  int device() const { return device_; }
  // An error if the seat is taken, or the device has another.
  ncclResult_t sit_down();
  bool all_joined() const;
  bool broken() const;                       // by a fault of some rank
  bool aborted() const { return aborted_; }  // by this one
  void abort();                              // ends what this rank waits for; the others hear nothing

  // One launch, on a thread of its stream: sends and receives go on together, then collectives in turn.
  void run(uint64_t launch, const std::vector<Call>& pairs, const std::vector<Meeting>& meetings);

 private:
  struct Transfer;

  template <typename Happened>
  bool wait(Happened&& happened);
  void meet(const Meeting& meeting);
  bool stage(const Meeting& meeting, size_t first, size_t count);
  bool all_came(const Meeting& meeting);
  std::string difference(const Meeting& meeting, int rank) const;
  void take(const Call& call, size_t first, size_t count);
  void exchange(const std::vector<Call>& calls);
  bool move(Transfer& transfer);
  void send_chunk(Transfer& transfer);
  void receive_chunk(Transfer& transfer);
  void fault(const std::string& words);

  const std::shared_ptr<Segment> segment_;
  const int rank_, device_;
  std::atomic<bool> aborted_{false};
  std::atomic<uint64_t> next_launch_{0};
};

}  // namespace gpu_emulation

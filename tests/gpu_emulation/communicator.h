// A rank of a communicator of the software GPU's NCCL. Ranks are threads or processes of one host. Device
// memory is private to a process, so data moves in chunks through a segment that all ranks share (segment.h).
//
// Nothing here notices that a rank was killed. As with NCCL on one host, its peers wait until they abort.
//
// Thread rule: run() from any thread, launches in the order of their numbers; abort() from any thread.
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
  int peer;  // the root, or the other rank of a message
  // Where the buffers lie in registered memory (nccl_comm.h).
  uint64_t in_place = 0, out_place = 0;
  bool symmetric = false;  // both lie in symmetric windows
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
  // Joins. Returns an error if the rank has joined before, or if another rank has the same device.
  ncclResult_t sit_down();
  bool all_joined() const;
  bool on_one_host() const;                  // all ranks that have joined
  bool broken() const;                       // by the fault of any rank
  bool aborted() const { return aborted_; }  // by this rank
  void abort();                              // ends this rank's waits; its peers do not notice
  // From now on no launch of this rank ends until mend_link() or abort(), as behind a broken link. told():
  // NCCL reports the link.
  void stop_link(bool told);
  void mend_link();
  bool told() const { return told_; }
  // Registers a window of this rank, and returns its number. A fault tells of ranks whose windows differ.
  uint64_t add_window(size_t bytes, int flags);
  void remove_window(uint64_t number);
  bool all_have_windows();  // every rank has registered as many as this one
  void leave();             // by ncclCommFinalize or ncclCommDestroy
  bool all_left() const;    // every rank has left

  // Runs one launch, on a thread of its stream: first all sends and receives at the same time, then each
  // collective.
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
  std::atomic<bool> aborted_{false}, stopped_{false}, told_{false};
  std::atomic<uint64_t> next_launch_{0};
  uint64_t windows_ = 0, compared_windows_ = 0, window_history_ = 0;  // used by the calling thread only
};

}  // namespace gpu_emulation

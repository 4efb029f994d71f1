// Tensors on their way between the stages of a pipeline: outputs to the next stage, gradients to the stage before.
//
// What is sent is copied into memory of its own first, which peers reach directly where the ranks share some: the sender
// computes on, and the receiver needs no help of it. Each sender and receiver have a gang of their own, with a channel for
// each way: on one rank it has sends alone, on the other receives alone, in the order of the program, so no message holds
// another one back but those of its own way. A message has at most 8 tensors. A receiver who does not know their dims gets
// them ahead, as a value of the host.
//
// Thread rule: one thread at a time; send and receive never wait for peers.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "gang/gang.h"
#include "nn/module.h"

namespace gangway {

enum class Way : uint8_t { forward, backward };

// Tensors whose memory is used again: taken, then given back. Memory that was lent and is still held when its turn comes is
// left to its holder and replaced.
class MessagePool {
 public:
  explicit MessagePool(std::shared_ptr<Allocator> from) : from_(std::move(from)) {}
  Tensor take(DType dtype, const Shape& shape);
  Tensor copy_of(const Tensor& tensor, Ops& ops, Stream& stream);  // row-major
  void give(const Tensor& tensor);  // from take or copy_of; any other tensor: nothing
  void lend(const Tensor& tensor);  // it may be held after give()
  size_t bytes() const;             // of all, taken or not

 private:
  struct Room {
    std::shared_ptr<Buffer> buffer;
    bool taken = false, lent = false;
  };
  Room* room_of(const Tensor& tensor);  // null: none of these
  const std::shared_ptr<Allocator> from_;
  std::vector<Room> rooms_;
};

// The dims of a message.
struct MessageHeader {
  static constexpr size_t kMostTensors = 8;
  struct Entry {
    int64_t dtype, rank;
    std::array<int64_t, kMaxDims> dims;
  };
  int64_t count = 0;
  std::array<Entry, kMostTensors> entries{};

  static MessageHeader of(const Specs& specs);  // INVALID_ARGUMENT: too many tensors
  Specs specs() const;                          // INTERNAL: no header
};

class Messages {
 public:
  // Collective over `gang`. `stage_rank`: its rank of each stage.
  Messages(GangPtr gang, Ops& ops, const std::vector<int>& stage_rank);
  ~Messages();  // never waits
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;

  // What is received. The tensors are there for the stream after arrive(), until release().
  struct Arrival;
  using ArrivalPtr = std::shared_ptr<Arrival>;

  // Starts. `tensors` are this object's pool's; they are given back when they have been received. `with_dims`: ahead.
  void send(Way way, int peer, Values tensors, bool with_dims, Stream& stream);
  // Starts. `known` null: the dims come ahead, and the tensors themselves are asked for in arrive().
  ArrivalPtr receive(Way way, int peer, const Specs* known, Stream& stream);
  // Waits, on a device, until the tensors are here: what this rank sent before gets on meanwhile.
  const Values& arrive(const ArrivalPtr& arrival, Stream& stream);
  void release(const ArrivalPtr& arrival);
  // Later work of the stream comes after all that was sent has been received.
  void finish(Stream& stream);
  // Local: peers that wait for this rank hear of the error.
  void abort(const Error& error) noexcept;
  const std::vector<GangPtr>& gangs() const { return all_; }  // the gang given, then those of pairs

  MessagePool& pool() { return pool_; }
  const MessagePool& pool() const { return pool_; }
  Ops& ops() { return ops_; }
  Gang& gang() { return *gang_; }

 private:
  struct Sent {
    Values tensors;
    std::shared_ptr<MessageHeader> header;  // null: the receiver knows the dims
    WorkPtr work, header_work;
  };
  // From this rank to `peer`, or the other way.
  Gang& pair(CollectiveOp op, int peer) const;
  WorkPtr start(Way way, CollectiveOp op, int peer, const Values& tensors, Stream& stream);
  WorkPtr start(CollectiveOp op, int peer, MessageHeader& header);
  void ask_up_to(const Arrival* last, Way way, int peer, Stream& stream);
  void reclaim();
  void keep(const WorkPtr& work, const Values& tensors) noexcept;
  void keep(const WorkPtr& work, std::shared_ptr<void> object) noexcept;

  const GangPtr gang_;
  Ops& ops_;
  std::map<std::pair<int, int>, GangPtr> pairs_;  // {sender, receiver}; those of this rank
  std::vector<GangPtr> all_;
  MessagePool pool_;
  std::deque<Sent> sent_;           // oldest first
  std::deque<ArrivalPtr> unasked_;  // their dims are awaited, in the order of receive()
  std::vector<std::weak_ptr<Arrival>> asked_;
};

}  // namespace gangway

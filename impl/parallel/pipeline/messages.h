// Tensors on their way between the stages of a pipeline: outputs to the next stage, gradients to the stage before.
//
// What is sent is copied into memory of its own first, which peers reach directly where the ranks share some: the sender
// computes on, and the receiver needs no help of it. Messages of one pair of ranks and one way arrive in the order of
// send() and receive(), which therefore have one order on both ranks; the two ways have a channel each. A message has at
// most 8 tensors. A receiver who does not know their dims gets them ahead, as a value of the host.
//
// Thread rule: one thread at a time; send and receive never wait for peers.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "gang/gang.h"
#include "nn/module.h"

namespace gangway {

enum class Way : uint8_t { forward, backward };

// Tensors whose memory is used again: taken, then given back.
class MessagePool {
 public:
  explicit MessagePool(std::shared_ptr<Allocator> from) : from_(std::move(from)) {}
  Tensor take(DType dtype, const Shape& shape);
  Tensor copy_of(const Tensor& tensor, Ops& ops, Stream& stream);  // row-major
  void give(const Tensor& tensor);  // from take or copy_of; any other tensor: nothing
  size_t bytes() const;             // of all, taken or not

 private:
  struct Room {
    std::shared_ptr<Buffer> buffer;
    bool taken = false;
  };
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
  // `gang`: no other traffic of sends and receives is on its channels pp_next, pp_previous and control.
  Messages(GangPtr gang, Ops& ops);
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
  const Values& arrive(const ArrivalPtr& arrival, Stream& stream);
  void release(const ArrivalPtr& arrival);
  // Later work of the stream comes after all that was sent has been received.
  void finish(Stream& stream);

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
  WorkPtr start(Way way, CollectiveOp op, int peer, const Values& tensors, Stream& stream);
  WorkPtr start(CollectiveOp op, int peer, MessageHeader& header);
  void ask(Arrival& arrival, Stream& stream);
  void reclaim();
  void keep(const WorkPtr& work, const Values& tensors) noexcept;
  void keep(const WorkPtr& work, std::shared_ptr<void> object) noexcept;

  const GangPtr gang_;
  Ops& ops_;
  MessagePool pool_;
  std::deque<Sent> sent_;           // oldest first
  std::deque<ArrivalPtr> unasked_;  // their dims are awaited, in the order of receive()
  std::vector<std::weak_ptr<Arrival>> asked_;
};

}  // namespace gangway

// Messages between the stages of a pipeline: outputs to the next stage, gradients to the previous stage.
//
// A message is copied to memory of this object first, which peers read directly if the ranks share memory.
// The sender can therefore go on computing, and the receiver does not need the sender's help. Each pair of a
// sender and a receiver has a gang of its own, with one channel per direction. One of its ranks only sends
// and the other only receives, in the order of the program, so a message waits only for earlier messages of
// its own direction. A message has at most 8 tensors. If the receiver does not know their shapes, a header
// with the shapes travels ahead, as a value of the host.
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

enum class Direction : uint8_t { forward, backward };

// A pool of tensors: memory is taken, given back and used again. Memory that was lent, and that its holder
// still has when it would be used again, is left to the holder and replaced by new memory.
class MessagePool {
 public:
  explicit MessagePool(std::shared_ptr<Allocator> from) : from_(std::move(from)) {}
  Tensor allocate(DType dtype, const Shape& shape);
  Tensor copy_of(const Tensor& tensor, Ops& ops, Stream& stream);  // row-major
  void release(const Tensor& tensor);  // ignores a tensor that is not of this pool
  void lend(const Tensor& tensor);     // the holder may keep it after release()
  size_t bytes() const;                // of all memory, taken or free

 private:
  struct Block {
    std::shared_ptr<Buffer> buffer;
    bool taken = false, lent = false;
  };
  Block* block_of(const Tensor& tensor);  // null: the tensor is not of this pool
  const std::shared_ptr<Allocator> from_;
  std::vector<Block> blocks_;
};

// The dtypes and shapes of a message.
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
  // Collective over `gang`. `stage_rank` has the rank of each stage in `gang`.
  Messages(GangPtr gang, Ops& ops, const std::vector<int>& stage_rank);
  ~Messages();  // never waits
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;

  // A message to be received. The stream may use its tensors after wait() and until release().
  struct Receive;
  using ReceivePtr = std::shared_ptr<Receive>;

  // Starts a send. `tensors` are of this object's pool, which gets them back when they have been received.
  // `with_header`: the header travels ahead.
  void send(Direction direction, int peer, Values tensors, bool with_header, Stream& stream);
  // Starts a receive. If `known` is null, the header travels ahead, and wait() starts the receive of the
  // tensors.
  ReceivePtr receive(Direction direction, int peer, const Specs* known, Stream& stream);
  // Orders the stream after the receive. On a device the host waits for it, and meanwhile drives earlier
  // sends of this rank.
  const Values& wait(const ReceivePtr& incoming, Stream& stream);
  void release(const ReceivePtr& incoming);
  // Orders later work of the stream after the receipt of all that was sent.
  void finish(Stream& stream);
  // Breaks the gangs, so that peers that wait for this rank get the error. Local.
  void abort(const Error& error) noexcept;
  // The gang given, then those of the pairs.
  const std::vector<GangPtr>& gangs() const { return all_; }

  MessagePool& pool() { return pool_; }
  const MessagePool& pool() const { return pool_; }
  Ops& ops() { return ops_; }
  Gang& gang() { return *gang_; }

 private:
  struct Sent {
    Values tensors;
    std::shared_ptr<MessageHeader> header;  // null: the receiver knows the shapes
    WorkPtr work, header_work;
  };
  // The gang in which this rank sends to `peer`, or receives from it.
  Gang& pair(CollectiveOp op, int peer) const;
  WorkPtr start(Direction direction, CollectiveOp op, int peer, const Values& tensors, Stream& stream);
  WorkPtr start(CollectiveOp op, int peer, MessageHeader& header);
  void start_receives_up_to(const Receive* last, Direction direction, int peer, Stream& stream);
  void reclaim();
  void keep(const WorkPtr& work, const Values& tensors) noexcept;
  void keep(const WorkPtr& work, std::shared_ptr<void> object) noexcept;

  const GangPtr gang_;
  Ops& ops_;
  // This rank's pairs, by {sender, receiver}.
  std::map<std::pair<int, int>, GangPtr> pairs_;
  std::vector<GangPtr> all_;
  MessagePool pool_;
  std::deque<Sent> sent_;                   // oldest first
  std::deque<ReceivePtr> awaiting_header_;  // wait for their headers, in the order of receive()
  std::vector<std::weak_ptr<Receive>> started_;
};

}  // namespace gangway

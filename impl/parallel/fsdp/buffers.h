// Buffers that the parameter groups of a model use in turn: rings of all-gathered values and of full
// gradients.
//
// A ring has a fixed number of buffers, each as large as its largest user needs. Parameter groups that
// contain others (the root) or that stay unsharded have a buffer of their own. If something else still
// references a buffer when it is taken again (an exported tensor), the ring leaves the buffer to its holder
// and allocates a new one. A buffer that is registered with an engine has no substitute, because every rank
// must use the same registered buffer; then the call is refused.
//
// Thread rule: one thread at a time.
#pragma once

#include <memory>
#include <vector>

#include "gang/gang.h"
#include "tensor/tensor.h"

namespace gangway {

// Allocates zeroed memory: device memory in the order of the device's stream, pinned host memory at once.
std::shared_ptr<Buffer> zeroed(const std::shared_ptr<Allocator>& from, size_t bytes);

// The buffers that gangs register with their engines (Engine::register_memory), in the order of all ranks. A
// buffer may be in the lists of several gangs.
class RegisteredBuffers {
 public:
  struct List {
    GangPtr gang;
    Channel channel;
    std::vector<std::shared_ptr<Buffer>> buffers;
    size_t sums = 0;  // the most bytes that one launch adds to its outputs
  };
  // Adds what the gang's collectives on the channel read or write. An absent buffer is ignored, and so is one
  // that the list has already.
  void add(const GangPtr& gang, Channel channel, const std::shared_ptr<Buffer>& buffer, size_t sums = 0);
  const std::vector<List>& lists() const { return lists_; }

 private:
  std::vector<List> lists_;
};

class PendingReductions;

// A buffer for the all-gathered values of one parameter group. A parameter group that takes it gets a lease
// and owns the values as long as its lease is the current one: another parameter group may take a buffer
// whose values are only prefetched.
struct AllGatherBuffer {
  enum class Use : uint8_t { free, ahead, in_use };  // ahead: prefetched
  std::shared_ptr<Allocator> from;
  GangPtr shards;  // whose engine registers the buffer, or null
  size_t bytes = 0;
  std::shared_ptr<Buffer> buffer;
  Use use = Use::free;
  WorkPtr gathering;              // the all-gather in flight, or null
  std::shared_ptr<Event> copied;  // the end of a copy from the host that needs no all-gather, or null
  uint64_t lease = 0;

  void allocate(std::shared_ptr<Allocator> allocator, size_t size);
  uint64_t take();  // returns a new lease
  // INVALID_STATE: the buffer is registered, and something still references it although no group uses it.
  void check_exports() const;
};

class AllGatherBuffers {
 public:
  void need(size_t bytes);  // before allocate: announces a user that needs so many bytes
  // `shards` not null: its engine registers the buffers.
  void allocate(const std::shared_ptr<Allocator>& from, const GangPtr& shards, int count);
  // Lists the buffers for gathers over this gang.
  void list(const GangPtr& gang, RegisteredBuffers& buffers) const;
  void check_exports() const;
  AllGatherBuffer* find_free();  // or null
  // Returns a free buffer, else one that is only prefetched (its all-gather may be in flight), else null.
  AllGatherBuffer* find();
  size_t bytes() const { return bytes_ * slots_.size(); }

 private:
  AllGatherBuffer* find(AllGatherBuffer::Use use);

  size_t bytes_ = 0;
  std::vector<AllGatherBuffer> slots_;
};

// A buffer for the full gradients of one parameter group, with the memory that their reduction needs.
struct GradientBuffer {
  std::shared_ptr<Allocator> full_from, output_from;
  GangPtr shards;  // whose engine registers the buffers, or null
  size_t full_bytes = 0, reduce_bytes = 0, output_bytes = 0;
  std::shared_ptr<Buffer> full, reduce_buffer, reduce_output;
  bool held = false;       // from acquire to the start of the reduction
  uint64_t reduction = 0;  // ticket of the last reduction in PendingReductions

  void allocate();
  void refresh();  // allocates a new full buffer if something else still references it
  void release();  // frees the buffers
  void check_exports(const PendingReductions& reductions) const;  // as AllGatherBuffer's
  void list(RegisteredBuffers& buffers) const;                    // for the reduction over `shards`
  // For the sums over ranks that hold equal shards.
  void list_outputs(const GangPtr& replicas, RegisteredBuffers& buffers) const;
  size_t bytes() const { return full_bytes + reduce_bytes + output_bytes; }
};

class GradientBuffers {
 public:
  void need(size_t full, size_t reduce, size_t output);
  void allocate(const std::shared_ptr<Allocator>& full_from, const std::shared_ptr<Allocator>& output_from,
                const GangPtr& shards, int count);
  void list(RegisteredBuffers& buffers) const;
  void list_outputs(const GangPtr& replicas, RegisteredBuffers& buffers) const;
  void check_exports(const PendingReductions& reductions) const;
  // Returns the next buffer that no parameter group holds. Its last reduction may be in flight, and the
  // caller waits for it. INVALID_STATE: all buffers are held.
  GradientBuffer& next();
  size_t bytes() const;

 private:
  size_t full_ = 0, reduce_ = 0, output_ = 0;
  std::vector<GradientBuffer> slots_;
  size_t next_ = 0;
};

}  // namespace gangway

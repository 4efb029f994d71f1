// The values of one parameter group: where this rank's rows lie, how whole values are made and dropped, and
// who may read or write which version.
//
// A parameter of n rows is cut into W pieces of ceil(n / W) rows over the gang "dp_shard+cp". There are three
// implementations, which keep the values in different ways:
//   WholeValues     W = 1 without cpu_offload. The shard is the whole value.
//   RegionValues    All ranks are on one host and W > 1. The ranks share one region, of which each rank owns
//                   its rows; unshard copies nothing.
//   GatheredValues  Each rank has a private shard; unshard is an all-gather.
// This class holds what they have in common: the private masters, and whether the group is unsharded.
//
// Thread rule: one thread at a time; unshard and the update are collective.
#pragma once

#include <memory>
#include <string>

#include "parallel/fsdp/group_context.h"
#include "parallel/fsdp/packing.h"

namespace gangway {

struct MemoryUse;

class GroupValues {
 public:
  // What the references name must outlive this object.
  GroupValues(const std::string& group, const GroupContext& place, const Packing& packing)
      : name_(group), place_(place), packing_(packing) {}
  virtual ~GroupValues() = default;
  GroupValues(const GroupValues&) = delete;
  GroupValues& operator=(const GroupValues&) = delete;

  // --- storage, in this order: allocate (local), open_region (collective), fill, the first publish
  virtual void allocate();
  virtual size_t region_bytes() const { return 0; }  // 0: there is no region, and open_region is not called
  virtual void open_region(const SharedRegion& /*region*/, const SharedRegion& /*gates*/,
                           size_t /*gate_offset*/) {}
  void fill(uint64_t seed, Stream& stream);

  // --- reading
  virtual void prefetch(Stream&) {}  // starts the all-gather of the next unshard, if a slot is free
  void unshard(Stream& stream);
  virtual void reshard();
  // The two halves of a reshard after forward: copy the part that the post-forward gang keeps, and drop the
  // whole values. `wanted_next`: they count as prefetched values, until another parameter group needs the
  // slot.
  virtual void keep_part(Stream&) {}
  void drop_whole(bool wanted_next = false);
  bool unsharded() const { return unsharded_; }
  virtual WorkPtr gathering() const { return nullptr; }  // the all-gather in flight, or null

  // --- around an update of this rank's rows, in this order (version_gate.h)
  virtual void release(Stream& stream);  // declares that this rank will not read the present version any more
  virtual void wait_released(Stream&) {}  // waits until no rank reads this rank's rows
  // Publishes the next version of this rank's rows. `cast`: casts the masters to the copies first.
  virtual void publish(bool cast, Stream& stream);

  // Of the buffers that this group uses, alone or in turn with others.
  virtual void list(RegisteredBuffers&) const {}
  virtual void check_exports() const {}

  virtual void count(MemoryUse& use) const;  // here: the masters

 protected:
  void show(const std::shared_ptr<Buffer>& buffer);  // sets the parameters' values to views of the buffer
  void hide();                                       // makes the parameters' values absent
  void count_private_rows(MemoryUse& use) const;

  const std::string& name_;
  const GroupContext& place_;
  const Packing& packing_;

 private:
  // Returns this rank's rows in the dtype that compute reads.
  virtual Tensor own_rows(const PackedParameter& p) const = 0;
  // Returns Parameter::value while the group is not unsharded; `own`: what own_rows() has returned.
  virtual Tensor value_at_rest(const Tensor& /*own*/) const { return {}; }
  virtual void make_whole(Stream& stream) = 0;      // for unshard
  virtual void forget_whole(bool wanted_next) = 0;  // for drop_whole

  std::shared_ptr<Buffer> masters_;
  bool unsharded_ = false;
  bool updating_ = false;  // between release and publish
};

}  // namespace gangway

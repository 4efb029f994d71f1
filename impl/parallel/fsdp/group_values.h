// The values of one parameter group: where this rank's rows lie, how whole values are made and dropped, and
// who may read or write which version.
//
// A parameter of n rows is cut into W pieces of ceil(n / W) rows over the gang "dp_shard+cp". A group keeps
// its values in one of three ways:
//   region    All ranks are on one host and W > 1. One shared region [W * ceil(n / W), ...] per parameter, in
//             which each rank owns its rows. It holds the f32 or f64 master itself, or with another compute
//             dtype a copy, and the master is private. unshard waits for the version gate (version_gate.h)
//             and copies nothing; whole values are views of the read-only mapping.
//   gathered  Each rank has a private shard. unshard is an all-gather on Channel::fsdp_gather into a slot
//             (buffers.h). Peers may read the input of a gather until the gather ends, so an update first
//             waits for the last gather. This replaces the version gate. With keepers (k ranks of the gang, k
//             > 1) each rank copies one k-th of the whole values after forward, and backward gathers from
//             those k ranks instead of all W. With cpu_offload the shards rest on the host. A stream beside
//             the compute stream copies this rank's rows to their place in the slot, where they are gathered
//             in place. This also holds for W = 1, where the copy is everything.
//   whole     W = 1 without cpu_offload. The shard is the whole value. No region, no slot, no version gate.
//
// Thread rule: one thread at a time; unshard and the update are collective.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "parallel/fsdp/group_context.h"
#include "parallel/fsdp/packing.h"
#include "parallel/fsdp/version_gate.h"

namespace gangway {

struct MemoryUse;

class GroupValues {
 public:
  // `shares_slots`: gathers into the shared ring of slots, else into a buffer of its own. What the references
  // name must outlive this object.
  GroupValues(const std::string& group, const GroupContext& place, const Packing& packing, bool shares_slots);
  ~GroupValues();
  GroupValues(const GroupValues&) = delete;
  GroupValues& operator=(const GroupValues&) = delete;

  // --- storage, in this order: allocate (local), open_region (collective), fill, the first publish
  void allocate();
  size_t region_bytes() const;  // 0: there is no region
  void open_region(const SharedRegion& region, const SharedRegion& gates, size_t gate_offset);
  void fill(uint64_t seed, Stream& stream);

  // --- reading
  void prefetch(Stream& stream);  // starts the all-gather of the next unshard, if a slot is free
  void unshard(Stream& stream);
  void reshard();
  // The two halves of a reshard after forward: copy the part that the keepers keep, and drop the whole
  // values. `wanted_next`: they count as prefetched values, until another parameter group needs the slot.
  void keep_part(Stream& stream);
  void drop_whole(bool wanted_next = false);
  bool unsharded() const { return unsharded_; }
  WorkPtr gathering() const;  // the all-gather in flight, or null

  // --- around an update of this rank's rows, in this order (version_gate.h)
  void release(Stream& stream);        // declares that this rank will not read the present version any more
  void wait_released(Stream& stream);  // waits until no rank reads this rank's rows
  // Publishes the next version of this rank's rows. `cast`: casts the masters to the copies first.
  void publish(bool cast, Stream& stream);

  void count(MemoryUse& use) const;

 private:
  enum class Storage : uint8_t { whole, region, gathered };
  struct Gathering {
    bool shares_slots = true;
    AllGatherBuffer own;
    // The slot of the values that are gathered or in flight. They are gone when the slot has another lease.
    AllGatherBuffer* slot = nullptr;
    uint64_t lease = 0;
    WorkPtr last;               // the last gather, in which peers may still read this rank's rows
    bool from_keepers = false;  // whether the values in the slot were gathered from the keepers
  };
  // This rank's part of the whole values, which are spread over the keepers.
  struct Kept {
    std::shared_ptr<Buffer> buffer;  // the parts of all parameters, one after the other
    size_t bytes = 0;                // 0: there are no keepers
    bool valid = false;              // from forward to the end of backward, or to an update
    WorkPtr last;                    // the last gather, in which peers may still read the buffer
  };
  void show(const std::shared_ptr<Buffer>& buffer);  // sets the parameters' values to views of the buffer
  bool gathered() const;  // whether the slot holds this group's values, or an all-gather in flight fills it
  void gather(AllGatherBuffer& slot, Stream& stream);
  void gather_from_host(AllGatherBuffer& slot, Stream& stream);
  void wait_gathered(Stream& stream);
  void wait_for(AllGatherBuffer& slot, Stream& stream);
  void leave_slot();
  size_t kept_bytes(const PackedParameter& p) const;  // a multiple of 64

  const std::string& name_;
  const GroupContext& place_;
  const Packing& packing_;
  Storage storage_ = Storage::whole;
  std::shared_ptr<Buffer> masters_, own_;
  SharedRegion region_;
  std::optional<VersionGate> gate_;
  Gathering gathering_;
  Kept kept_;
  bool unsharded_ = false;
  bool updating_ = false;  // between release and publish
};

}  // namespace gangway

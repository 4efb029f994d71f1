// The values of one parameter group: where own rows lie, how whole values appear and vanish, and who may read
// what when.
//
// A parameter of n rows lies in W pieces of ceil(n / W) rows over the gang "dp_shard+cp".
//   region    all ranks on one host, W > 1: one shared region [W * ceil(n / W), ...] per parameter of which a rank
//             owns its rows. Holds the f32 or f64 master itself, or with another compute dtype a copy (the
//             master is private then). unshard waits for the version gate (version_gate.h) and moves no bytes; whole values
//             are views of the read-only mapping.
//   gathered  private shards; unshard is an all_gather on Channel::fsdp_gather into a slot (buffers.h). A
//             gather leaves its input readable by peers until the next update, which waits for them: the same
//             version gate, made of the gathers' own ends.
//             With keepers (k ranks of the gang, k > 1) a rank copies its k-th of the whole values after forward; backward
//             gathers from those k ranks instead of all W.
//             With cpu_offload shards rest on the host: own rows are copied to their place in the slot on a stream beside
//             compute, and gathered there in place. So it is for W = 1, too, where the copy is all.
//   whole     W = 1: the whole value is the value. No region, no slot, no counters.
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
  // `shares_slots`: gathers into the ring, else into a buffer of its own. The references outlive it.
  GroupValues(const std::string& group, const GroupContext& place, const Packing& packing, bool shares_slots);
  ~GroupValues();
  GroupValues(const GroupValues&) = delete;
  GroupValues& operator=(const GroupValues&) = delete;

  // --- storage: allocate (local), open_region (collective), fill, then the first publish
  void allocate();
  size_t region_bytes() const;  // 0: has none
  void open_region(const SharedRegion& region, const SharedRegion& gates, size_t gate_offset);
  void fill(uint64_t seed, Stream& stream);

  // --- reading
  void prefetch(Stream& stream);  // starts what unshard would wait for, if there is a free slot
  void unshard(Stream& stream);
  void reshard();
  // The two halves of a reshard after forward: what keepers keep, and that whole values are gone.
  // `wanted_next`: they count as gathered ahead, until another parameter group needs the slot.
  void keep_part(Stream& stream);
  void drop_whole(bool wanted_next = false);
  bool unsharded() const { return unsharded_; }
  WorkPtr gathering() const;  // null: none in flight

  // --- the version gate around a write of own rows
  void release(Stream& stream);             // this rank reads the present version no more
  void wait_released(Stream& stream);       // nor does anybody else
  void publish(bool cast, Stream& stream);  // the next version; casts masters into copies first

  void count(MemoryUse& use) const;

 private:
  enum class Storage : uint8_t { whole, region, gathered };
  struct Gathering {
    bool shares_slots = true;
    AllGatherBuffer own;
    AllGatherBuffer* slot = nullptr;  // while gathering or gathered, and while it has this lease
    uint64_t lease = 0;
    WorkPtr last;  // peers may still read this rank's rows for it
    bool from_keepers = false;
  };
  // This rank's part of the whole values, over the keepers.
  struct Kept {
    std::shared_ptr<Buffer> buffer;  // as the whole values, each parameter's part after the other
    size_t bytes = 0;                // 0: there are no keepers
    bool valid = false;              // from forward to the end of backward, or to an update
    WorkPtr last;                    // peers may still read it for this
  };
  void show(const std::shared_ptr<Buffer>& buffer);
  bool gathered() const;  // or on the way
  void gather(AllGatherBuffer& slot, Stream& stream);
  void gather_from_host(AllGatherBuffer& slot, Stream& stream);
  void wait_gathered(Stream& stream);
  void wait_for(AllGatherBuffer& slot, Stream& stream);
  void leave_slot();
  size_t kept_bytes(const PackedParameter& p) const;  // multiples of 64

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
  bool updating_ = false;  // from release to publish
};

}  // namespace gangway

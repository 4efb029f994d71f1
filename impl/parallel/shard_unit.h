// A unit: a set of parameters whose values appear and vanish together and whose gradients are reduced together. It
// knows no modules; fully_shard.h calls it around a module, shard_group.h on behalf of a foreign runtime.
//
// Values. A parameter of n rows lies in W pieces of ceil(n / W) rows over the gang "dp_shard+cp".
//   region    all ranks on one host, W > 1: one shared region [W * rows, ...] per parameter of which a rank owns its
//             rows. Holds the f32 or f64 master itself, or with another compute dtype a copy (the master is private
//             then). unshard waits for the fence (fence.h) and moves no bytes; full values are views of the read-only
//             mapping.
//   gathered  private shards; unshard is an all_gather on Channel::fsdp_gather into a slot (slots.h). A gather leaves
//             its input readable by peers until begin of the next update, which waits for them: the same fence, made
//             of the gathers' own ends.
//   whole     W = 1: the full value is the value. No region, no slot, no counters.
//
// Gradients. acquire_gradients gives every trainable parameter a full gradient that is to be written first; when the
// unit's weight half ended, reduce adds SUM over shards, then over replicas, to shard_grad: one span of reduce_scatter
// with each rank's own counts on Channel::fsdp_reduce, then one of all_reduce on Channel::replicate. What was not
// written counts as zero. Reductions are only started; they end before their slot is used again and in settle.
//
// Thread rule: one thread at a time; unshard, reduce and the update are collective.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "parallel/fence.h"
#include "parallel/packing.h"
#include "parallel/slots.h"

namespace gangway {

struct MemoryUse;

// What the units of one model share.
struct UnitPlace {
  Ops* ops = nullptr;
  GangPtr shards;    // "dp_shard+cp"; null: not sharded
  GangPtr replicas;  // the ranks that hold equal shards
  std::string axis;  // name of `shards` in layouts
  bool regions = true;  // shared regions where they are possible

  int shard_ranks() const { return shards == nullptr ? 1 : shards->size(); }
  int shard_rank() const { return shards == nullptr ? 0 : shards->rank(); }
  int replica_ranks() const { return replicas->size(); }
};

class ShardUnit {
 public:
  // `name` in errors. owns_slots: its buffers are its own, not the rings' (the root, units around others).
  ShardUnit(std::string name, std::vector<NamedParameter> parameters, const ShardOptions& options,
            bool owns_slots);
  virtual ~ShardUnit();
  ShardUnit(const ShardUnit&) = delete;
  ShardUnit& operator=(const ShardUnit&) = delete;

  const std::string& name() const { return name_; }
  const std::vector<NamedParameter>& parameters() const { return named_; }
  const ShardOptions& options() const { return options_; }
  const Packing& packing() const { return packing_; }
  const UnitPlace& place() const { return place_; }
  bool sharded() const { return place_.shard_ranks() > 1; }  // over more than one rank
  bool reshards() const { return reshards_; }                // after forward
  // Only reduce() reduces, never the end of a backward or settle (shard groups).
  void set_manual() { manual_ = true; }

  // --- storage: plan, then allocate (local), then open_region (collective), then fill, then the first publish --------
  void plan(const UnitPlace& place, DType master, ValueRing& values, GradientRing& gradients,
            ReductionLine& line);
  virtual void allocate();
  size_t region_bytes() const;  // 0: has none
  void open_region(const SharedRegion& region, const SharedRegion& fences, size_t fence_offset);
  void fill(uint64_t seed, Stream& stream);

  // --- values ---------------------------------------------------------------------------------------------------------
  void prefetch(Stream& stream);  // starts what unshard would wait for, if there is a free slot
  void unshard(Stream& stream);
  void reshard();
  bool unsharded() const { return unsharded_; }
  bool drop_gathered();  // gives up a gather that nobody uses yet; false: in use
  WorkPtr gathering() const { return gather_; }  // null: none in flight

  // --- gradients ------------------------------------------------------------------------------------------------------
  virtual void acquire_gradients(Stream& stream);
  // The weight half ended; `last`: of the last microbatch. Reduces unless the unit accumulates unsharded.
  virtual void weight_half_done(bool last, Stream& stream);
  // Starts the reduction of whatever is in the full gradients; manual: acquires them first (zeros).
  void reduce(Stream& stream);
  // Reduces what is left; all sums are in shard_grad afterwards, unwritten ones are zero. Collective, in two halves so
  // that all units' reductions travel together.
  virtual void reduce_leftovers(Stream& stream);  // starts
  virtual void finish_gradients(Stream& stream);  // ends
  virtual void zero_gradients(Stream& stream);
  bool accumulates_unsharded() const { return accumulates_; }
  void drop_full_gradients() { own_gradients_.release(); }
  // For ReductionLine.
  WorkPtr reduce_over_replicas(GradientSlot& slot, Stream& stream);
  void land(GradientSlot& slot, Stream& stream);

  // --- the fence around a write of own rows ---------------------------------------------------------------------------
  void release();        // this rank reads the present version no more
  void wait_released();  // nor does anybody else
  void publish(bool cast, Stream& stream);  // the next version; casts masters into copies first

  virtual void count(MemoryUse& use) const;

 protected:
  enum class Storage : uint8_t { whole, region, gathered };
  Tensor own_rows(const std::shared_ptr<Buffer>& buffer, size_t at, DType dtype, const PackedParameter& p) const;
  void zero_unwritten(Stream& stream);

  const std::string name_;
  const std::vector<NamedParameter> named_;
  const ShardOptions options_;
  UnitPlace place_;
  Packing packing_;
  bool gradients_elsewhere_ = false;  // a subclass gives them storage

 private:
  void place_gradient(const PackedParameter& packed);
  void show(const std::shared_ptr<Buffer>& buffer, bool region);
  void gather(Stream& stream);
  std::shared_ptr<Allocator> plain() const { return place_.ops->device().allocator(); }
  bool reduces() const {
    return !gradients_elsewhere_ && (place_.shard_ranks() > 1 || place_.replica_ranks() > 1);
  }
  bool lands_in_place() const;
  void write_unwritten(Stream& stream);
  WorkPtr start_shard_reduction(GradientSlot& slot, Stream& stream);
  WorkPtr all_reduce(const std::shared_ptr<Buffer>& buffer, bool whole, Stream& stream);

  const bool owns_slots_;
  const bool reshards_;
  const bool accumulates_;
  bool manual_ = false;
  Storage storage_ = Storage::whole;
  bool unsharded_ = false;
  bool updating_ = false;  // from release to publish

  std::shared_ptr<Buffer> masters_, own_, shard_gradients_;
  SharedRegion region_;
  std::optional<Fence> fence_;
  ValueRing* value_ring_ = nullptr;
  ValueSlot own_slot_;
  ValueSlot* value_slot_ = nullptr;  // while gathering or gathered
  WorkPtr gather_;
  WorkPtr last_gather_;  // peers may still read this rank's rows for it

  GradientRing* gradient_ring_ = nullptr;
  ReductionLine* line_ = nullptr;
  GradientSlot own_gradients_;
  GradientSlot* gradient_slot_ = nullptr;  // from acquire to reduce
};

}  // namespace gangway

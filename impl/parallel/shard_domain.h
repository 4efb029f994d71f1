// All units of one model: their order, their shared rings and fence counters, the begin and end of an update.
//
// Order. Units stand in the order of the tree, which is taken for the order of forward: while one computes,
// the next is gathered ahead, in backward the one before. Another order costs time, never correctness.
//
// Update. begin_update: no unit may be unsharded; every reduction ends; `released` is published for every
// unit, then all readers are waited for. From then to end_update this rank may write its own rows, and nobody
// reads them. A unit cannot be unsharded meanwhile.
//
// Thread rule: one thread at a time; all but the facts are collective.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "mesh/gangs.h"
#include "parallel/replicate.h"
#include "parallel/shard_unit.h"

namespace gangway {

class ShardDomain {
 public:
  ShardDomain(std::shared_ptr<Gangs> gangs, Ops& ops);
  ~ShardDomain() { line_.give_up(); }
  ShardDomain(const ShardDomain&) = delete;
  ShardDomain& operator=(const ShardDomain&) = delete;

  const std::vector<std::shared_ptr<ShardUnit>>& units() const { return units_; }
  bool materialized() const { return materialized_; }
  // Before materialize: false keeps private shards even on one host.
  void use_regions(bool on) { regions_ = on; }

  void remove_units();  // before materialize succeeded
  void add(std::shared_ptr<ShardUnit> unit) { units_.push_back(std::move(unit)); }
  void set_order(const std::vector<const ShardUnit*>& order);  // of all units, before materialize
  std::shared_ptr<Buckets> make_buckets();
  // Units that another domain has materialised.
  void adopt(const ShardDomain& other);
  // Plans, takes memory (refusals are agreed), opens regions, fills own rows, publishes the first version.
  // `master` none: every parameter's own dtype.
  void materialize(uint64_t seed, DType master);

  void unshard(ShardUnit& unit, bool forward, Stream& stream);  // and gathers its neighbours ahead
  void reshard_all();
  void finish_gradients(Stream& stream);
  void zero_gradients(Stream& stream);
  void check_update() const;  // what begin_update would refuse on this rank
  void begin_update(Stream& stream);
  // `cast`: masters into copies; `empty`: gradients.
  void end_update(bool cast, bool empty, Stream& stream);

  bool last_microbatch() const { return last_; }
  void set_last_microbatch(bool last) { last_ = last; }
  void count(MemoryUse& use) const;

 private:
  UnitPlace place_of(const ShardUnit& unit);
  void plan(DType master);
  void forget_plans();
  void allocate();
  void open_regions(std::span<SharedRegion> regions);

  std::shared_ptr<Gangs> gangs_;
  Ops& ops_;
  // Before the units, which let go of them.
  ValueRing values_;
  GradientRing gradients_;
  ReductionLine line_;
  std::vector<std::shared_ptr<ShardUnit>> units_;
  bool regions_;
  bool materialized_ = false;
  bool last_ = true;
  bool updating_ = false;
};

}  // namespace gangway

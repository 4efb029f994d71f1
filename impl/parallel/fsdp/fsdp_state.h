// All units of one model: their order, their shared rings and fence counters, the begin and end of an update.
//
// Order. Units stand in the order of the tree, which is taken for the order of forward: while one computes,
// the next is gathered ahead, in backward the one before. Another order costs time, never correctness.
//
// Update. begin_update: no unit may be unsharded; every reduction ends; `released` is published for every
// unit, then all readers are waited for. From then to end_update this rank may write its own rows, and no peer
// reads them. A unit cannot be unsharded meanwhile.
//
// Thread rule: one thread at a time; all but the facts are collective.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "mesh/gangs.h"
#include "parallel/fsdp/param_group.h"
#include "parallel/fsdp/replicate.h"
#include "parallel/fsdp/tied_parameters.h"
#include "parallel/stream_order.h"

namespace gangway {

class FsdpState {
 public:
  FsdpState(std::shared_ptr<Gangs> gangs, Ops& ops);
  ~FsdpState() { reductions_.give_up(); }
  FsdpState(const FsdpState&) = delete;
  FsdpState& operator=(const FsdpState&) = delete;

  const std::shared_ptr<Gangs>& gangs() const { return gangs_; }
  const std::vector<std::shared_ptr<ParamGroup>>& units() const { return units_; }
  bool is_last(const ParamGroup& unit) const { return units_.back().get() == &unit; }
  bool materialized() const { return materialized_; }
  // Later work of `stream` comes after all that earlier calls have put on theirs. First in each call that has a stream.
  void order(Stream& stream);
  // Before materialize: false keeps private shards even on one host.
  void use_regions(bool on) { regions_ = on; }

  void remove_units();  // before materialize succeeded
  void add(std::shared_ptr<ParamGroup> unit) { units_.push_back(std::move(unit)); }
  void set_order(const std::vector<const ParamGroup*>& order);  // of all units, before materialize
  std::shared_ptr<Buckets> make_buckets();
  // Units that another domain has materialised.
  void adopt(const FsdpState& other);
  // Before materialize, of a model that is cut into stages: the parameters of other pipeline ranks, which get no rows, those
  // that several of these ranks use, and how many units are unsharded at a time.
  // `options`: of all units.
  void set_stages(std::vector<ParameterPtr> elsewhere, std::vector<TiedParameter> tied, int most_unsharded,
                  const ShardOptions& options);
  TiedParameters* tied() { return tied_.get(); }  // null: none
  // Plans, takes memory (refusals are agreed), opens regions, fills own rows, publishes the first version.
  // `master` none: every parameter's own dtype.
  void materialize(uint64_t seed, DType master);

  void unshard(ParamGroup& unit, bool forward, Stream& stream);  // and gathers its neighbours ahead
  void reshard_all();
  void finish_gradients(Stream& stream);
  void zero_gradients(Stream& stream);
  bool updating() const { return updating_; }
  // What begin_update would refuse on this rank; `reshards`: after a reshard_all.
  void check_update(bool reshards = false) const;
  void begin_update(Stream& stream);
  // `cast`: masters into copies; `empty`: gradients.
  void end_update(bool cast, bool empty, Stream& stream);

  bool is_last_backward() const { return last_; }
  void set_is_last_backward(bool last) { last_ = last; }
  void count(MemoryUse& use) const;

 private:
  bool rests_on_host(const ParamGroup& unit) const;
  bool has_keepers(const ParamGroup& unit) const;  // who keep values between them after forward
  GroupContext place_of(const ParamGroup& unit);
  void plan(DType master);
  void forget_plans();
  void allocate();
  void place_elsewhere(DType master);
  void open_regions(std::span<SharedRegion> regions);

  std::shared_ptr<Gangs> gangs_;
  Ops& ops_;
  // Before the units, which let go of them.
  std::unique_ptr<SideStream> side_;  // of units that rest on the host; null: there are none
  AllGatherBuffers values_;
  GradientBuffers gradients_;
  PendingReductions reductions_;
  std::vector<std::shared_ptr<ParamGroup>> units_;
  std::vector<ParameterPtr> elsewhere_;
  std::vector<TiedParameter> to_tie_;
  std::unique_ptr<TiedParameters> tied_;
  int most_unsharded_ = 0;                            // 0: not cut into stages
  ShardOptions options_;                              // of a model that is
  std::vector<std::shared_ptr<StreamOrder>> orders_;  // its own, then those of adopted units
  bool regions_;
  bool materialized_ = false;
  bool last_ = true;
  bool updating_ = false;
};

}  // namespace gangway

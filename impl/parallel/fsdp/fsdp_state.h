// The FSDP state of one model: all parameter groups, their order, the buffers and version gates that they
// share, and the begin and end of an update.
//
// Order. Parameter groups are in the order of the tree, which is taken for the order of forward. While one
// computes, the next one is prefetched, and in backward the previous one. If a model runs in another order,
// prefetching is useless, but results are the same.
//
// Update. begin_update requires that no parameter group is unsharded. It waits for every reduction, publishes
// `released` for every parameter group, and then waits for all readers. Until end_update this rank may write
// its own rows, which no peer reads, and no parameter group can be unsharded.
//
// Thread rule: one thread at a time; all calls are collective, except those that only return a fact.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "mesh/gangs.h"
#include "parallel/fsdp/parameter_group.h"
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
  const std::vector<std::shared_ptr<ParameterGroup>>& groups() const { return groups_; }
  bool is_last(const ParameterGroup& group) const { return groups_.back().get() == &group; }
  bool materialized() const { return materialized_; }
  // Makes later work of `stream` wait for the work of all earlier calls on their streams. Every call that
  // takes a stream does this first.
  void order(Stream& stream);
  // Before materialize: `on` false keeps shards private, even if all ranks are on one host.
  void use_regions(bool on) { regions_ = on; }

  void remove_groups();  // only before materialize has succeeded
  void add(std::shared_ptr<ParameterGroup> group) { groups_.push_back(std::move(group)); }
  // Before materialize: sorts the parameter groups. `order` has all of them.
  void set_order(const std::vector<const ParameterGroup*>& order);
  std::shared_ptr<Buckets> make_buckets();
  // Adds the parameter groups that another FsdpState has materialised.
  void adopt(const FsdpState& other);
  // Before materialize, for a model that is cut into stages. `remote_parameters` are the parameters of other
  // pipeline ranks, which get no rows here; `tied` are those that several pipeline ranks use;
  // `most_unsharded` is the number of parameter groups that are unsharded at a time; `options` are those of
  // all parameter groups.
  void set_stages(std::vector<ParameterPtr> remote_parameters, std::vector<TiedParameter> tied,
                  int most_unsharded, const ShardOptions& options);
  TiedParameters* tied() { return tied_.get(); }  // null: no parameter is tied between pipeline ranks
  // Plans the layout, allocates memory (refusals are agreed), opens shared regions, initialises own rows and
  // publishes the first version. `master` none: every parameter keeps its own dtype.
  void materialize(uint64_t seed, DType master);

  // Local, before the model computes. INVALID_STATE: a whole value or gradient that was exported is still
  // held, and its memory is registered. Found during a computation it would break the gang.
  void check_exports() const;
  void unshard(ParameterGroup& group, bool forward, Stream& stream);  // also prefetches the next ones
  void reshard_all();
  void finish_gradients(Stream& stream);
  void zero_gradients(Stream& stream);
  bool updating() const { return updating_; }
  // Throws what begin_update would refuse on this rank. `reshards` says that reshard_all comes before it.
  void check_update(bool reshards = false) const;
  // INVALID_STATE: a shard group has full gradients that its caller did not reduce. An update would leave
  // them out, and a later one would count them.
  void check_reduced(const char* call) const;
  void begin_update(Stream& stream);
  // `cast` says that master values are cast into their copies first; `empty` says that gradients are emptied.
  void end_update(bool cast, bool empty, Stream& stream);

  bool is_last_backward() const { return last_; }
  void set_is_last_backward(bool last) { last_ = last; }
  void count(MemoryUse& use) const;

 private:
  bool is_offloaded(const ParameterGroup& group) const;
  // Returns whether values stay sharded over fewer ranks after forward (reshard_after_forward > 1).
  bool has_post_forward_gang(const ParameterGroup& group) const;
  GroupContext place_of(const ParameterGroup& group);
  void plan(DType master);
  void forget_plans();
  void allocate();
  bool registers() const;
  void register_buffers();
  void release_registered();
  void place_remote_parameters(DType master);
  void open_regions(std::span<SharedRegion> regions);

  std::shared_ptr<Gangs> gangs_;
  Ops& ops_;
  // Declared before `groups_`, so that these outlive the parameter groups.
  std::unique_ptr<SideStream> side_;  // for parameter groups with cpu_offload; null: there are none
  AllGatherBuffers values_;
  GradientBuffers gradients_;
  PendingReductions reductions_;
  std::vector<std::shared_ptr<ParameterGroup>> groups_;
  std::vector<ParameterPtr> remote_parameters_;
  std::vector<TiedParameter> to_tie_;
  std::unique_ptr<TiedParameters> tied_;
  int most_unsharded_ = 0;                            // 0: the model is not cut into stages
  ShardOptions options_;                              // used only if the model is cut into stages
  std::vector<std::shared_ptr<StreamOrder>> orders_;  // its own one, then those of adopted parameter groups
  bool regions_;
  bool materialized_ = false;
  bool last_ = true;
  bool updating_ = false;
};

}  // namespace gangway

// The gangs of a mesh: the root, one gang for each axis, and one for each product of axes. A shared_ptr holds
// them. close() (collective) shuts down all gangs that were made here; the destructor only releases them.
//
// Places are sets of axes. Places that differ only by axes of degree 1 share one gang. Every other place has
// a gang of its own: a product with all ranks of the root is a duplicate of the root, and a place with one
// rank is a gang of size 1. Different uses inside the library use different channels of a gang, so no other
// gang is duplicated.
//
// Thread rule: one thread at a time for collective calls; the accessors from any thread.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "base/thread_use.h"
#include "gang/gang.h"
#include "mesh/mesh.h"

namespace gangway {

class Gangs;
using GangsPtr = std::shared_ptr<Gangs>;

// Gangs that the caller made, one for each place.
struct GangsByAxis {
  GangPtr root, dp, rdp, sdp, tp, pp, cp;
};

// Makes the gangs of a mesh. Like all functions below, it is collective over root: all ranks refuse together,
// and ranks that ask for different meshes get MISMATCH. If root is null, a root gang is made from the
// environment and belongs to the result. INVALID_ARGUMENT as in Mesh::resolve.
GangsPtr create_gangs(GangPtr root, const MeshOptions& options);
// The form that fairseq2 has: all of root's ranks that the degrees leave are dp, sharded. INVALID_ARGUMENT: a
// degree is below 1 or no factor of root's size.
GangsPtr create_parallel_gangs(GangPtr root, int tp = 1, int pp = 1, int cp = 1);
// The form that fairseq2 has: splits dp into replicas of `intra_node_size` shards. Without a number, sdp is
// dp, and rdp is a gang of size 1. Makes new gangs on the root of `gangs`. INVALID_ARGUMENT: the number is at
// most 1 or no factor of dp's size, or `gangs` have cp > 1.
GangsPtr create_fsdp_gangs(const Gangs& gangs, std::optional<int> intra_node_size);
// Puts a fake gang of size 1 in every place. Local. INVALID_ARGUMENT on meta.
GangsPtr create_fake_gangs(const std::string& device);
// Takes the caller's own gangs, which close() does not shut down. Their sizes are the degrees of the mesh.
// INVALID_ARGUMENT: a gang is missing, the root's rank 0 is not rank 0 of every gang, the product of the
// sizes is not root's size, or a gang's members are not those of the mesh.
GangsPtr create_gangs_of(const GangsByAxis& places);

class Gangs : public std::enable_shared_from_this<Gangs> {
 public:
  // Local accessors.
  const Mesh& mesh() const { return mesh_; }
  int coordinate(Axis axis) const { return coordinates_[static_cast<size_t>(axis)]; }

  const GangPtr& root() const { return root_; }
  // Of the shard groups over these gangs, which one thread at a time may use.
  const std::shared_ptr<ThreadUse>& thread_use() const { return thread_use_; }
  const GangPtr& dp() const { return made(kDataAxes); }
  const GangPtr& rdp() const { return made(axis_bit(Axis::dp_replicate)); }
  const GangPtr& sdp() const { return made(axis_bit(Axis::dp_shard)); }
  const GangPtr& tp() const { return made(axis_bit(Axis::tp)); }
  const GangPtr& pp() const { return made(axis_bit(Axis::pp)); }
  const GangPtr& cp() const { return made(axis_bit(Axis::cp)); }
  // The gang that FSDP shards over, "dp_shard+cp". loss_gang() below is the one over which losses are summed,
  // "dp_replicate+dp_shard+cp".
  const GangPtr& fsdp_gang() const { return made(axis_bit(Axis::dp_shard) | axis_bit(Axis::cp)); }
  // Returns a gang of `ranks` consecutive ranks of fsdp_gang that include this one. `ranks` must divide
  // fsdp_gang's size. The first call with a number is collective over root, later ones are local.
  GangPtr fsdp_subgang(int ranks);
  std::vector<GangPtr> fsdp_subgangs() const;  // those so far, in the order of their sizes
  const GangPtr& loss_gang() const { return made(kDataAxes | axis_bit(Axis::cp)); }

  // Returns the gang of any product of axes. It is local, since every gang is made at creation. So a refusal
  // here cannot leave peers waiting in the creation of a gang. INVALID_ARGUMENT as in parse_axes;
  // INVALID_STATE after close.
  GangPtr by_axes(std::string_view axes) const;

  // Gives which part of the global batch this rank reads, and the number of parts. Ranks that differ only on
  // tp, cp and pp read the same part. Local.
  void data_shard(int* index, int* count) const;

  // Shuts down, collectively, the gangs that were made here. It skips broken gangs, and throws the first
  // error of the others at the end. A second call does nothing.
  void close(int64_t timeout_ms);
  // Break the root and every gang that was made here. Local, any thread; the form with a reason also in a
  // signal handler, see Gang::abort.
  void abort(const char* reason);
  void abort(const Error& error) noexcept;

 private:
  friend GangsPtr create_gangs(GangPtr root, const MeshOptions& options);
  friend GangsPtr create_parallel_gangs(GangPtr root, int tp, int pp, int cp);
  friend GangsPtr create_gangs_of(const GangsByAxis& places);
  static GangsPtr create(const GangPtr& root, bool owns_root, const MeshOptions& options);
  Gangs(GangPtr root, const Mesh& mesh, bool owns_root);
  const GangPtr& made(AxisSet axes) const;

  const std::shared_ptr<ThreadUse> thread_use_ = std::make_shared<ThreadUse>();
  void make_all();  // collective over root, in the same order on all ranks
  GangPtr make(AxisSet plain);

  GangPtr root_;
  Mesh mesh_;
  Coordinates coordinates_{};
  mutable std::mutex mutex_;           // protects the members below
  std::map<AxisSet, GangPtr> places_;  // for every set of axes; does not change after creation
  std::map<int, GangPtr> subgangs_;    // for each number of ranks that fsdp_subgang was asked for
  std::vector<GangPtr> owned_;         // gangs to shut down, in the order in which they were made
  bool closed_ = false;
  AbortRequest abort_request_;
};

}  // namespace gangway

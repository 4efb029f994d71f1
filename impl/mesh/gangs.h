// The gangs of a mesh: root, one for each axis, and products of axes. Held by a shared_ptr; closing
// (collective) shuts down all that it made, destruction only lets go.
//
// Each place of `gangs` holds a gang of its own: axes that differ only by axes of degree 1 are one gang, a
// product with all ranks of the root is a duplicate of it, a place with one rank is a gang of one. Uses
// inside the library differ by channel, so nothing else is duplicated.
//
// Thread rule: one thread at a time for collective calls; the accessors from any thread.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "gang/gang.h"
#include "mesh/mesh.h"

namespace gangway {

class Gangs;
using GangsPtr = std::shared_ptr<Gangs>;

// Gangs that somebody else made, one for each place.
struct GangPlaces {
  GangPtr root, dp, rdp, sdp, tp, pp, cp;
};

// Collective over root, like everything below: refusals are agreed, and ranks that ask for different meshes
// get MISMATCH. Null root: one is made from the environment and belongs to the result. INVALID_ARGUMENT by
// Mesh::resolve.
GangsPtr create_gangs(GangPtr root, const MeshOptions& options);
// fairseq2's form: the rest of root's ranks is dp (all of it sharded). A degree < 1 or no factor of root's
// size is INVALID_ARGUMENT.
GangsPtr create_parallel_gangs(GangPtr root, int tp = 1, int pp = 1, int cp = 1);
// fairseq2's form: splits dp into replicas of `intra_node_size` shards; none: sdp is dp and rdp a gang of
// one. Makes new gangs on the root of `gangs`. INVALID_ARGUMENT: a number <= 1 or no factor of dp's size;
// gangs with cp > 1.
GangsPtr create_fsdp_gangs(const Gangs& gangs, std::optional<int> intra_node_size);
// One fake gang of size 1 in every place. Local. INVALID_ARGUMENT on meta.
GangsPtr create_fake_gangs(const std::string& device);
// The caller's own gangs; closing leaves them alone. Their sizes are the mesh. INVALID_ARGUMENT: a missing
// one; the root's rank 0 is not rank 0 of every one; sizes that do not make root's; members other than the
// mesh's.
GangsPtr create_gangs_of(const GangPlaces& places);

class Gangs {
 public:
  // Facts, local.
  const Mesh& mesh() const { return mesh_; }
  int coordinate(Axis axis) const { return coordinates_[static_cast<size_t>(axis)]; }

  const GangPtr& root() const { return root_; }
  const GangPtr& dp() const { return made(kDataAxes); }
  const GangPtr& rdp() const { return made(axis_bit(Axis::dp_replicate)); }
  const GangPtr& sdp() const { return made(axis_bit(Axis::dp_shard)); }
  const GangPtr& tp() const { return made(axis_bit(Axis::tp)); }
  const GangPtr& pp() const { return made(axis_bit(Axis::pp)); }
  const GangPtr& cp() const { return made(axis_bit(Axis::cp)); }
  // What FSDP splits over, "dp_shard+cp", and what a loss is summed over, "dp_replicate+dp_shard+cp".
  const GangPtr& fsdp_gang() const { return made(axis_bit(Axis::dp_shard) | axis_bit(Axis::cp)); }
  // `ranks` consecutive ranks of fsdp_gang, this one among them. The first call with a number is collective over root, the
  // others are local. `ranks` divides fsdp_gang's size.
  GangPtr fsdp_part(int ranks);
  const GangPtr& loss_gang() const { return made(kDataAxes | axis_bit(Axis::cp)); }

  // Any product of axes. Local: every one is made at creation, so a refusal here leaves no peer in the making
  // of a gang. INVALID_ARGUMENT by parse_axes; INVALID_STATE after close.
  GangPtr by_axes(std::string_view axes) const;

  // Local: rows of the global batch that this rank reads; equal on tp, cp and pp.
  void data_shard(int* index, int* count) const;

  // Collective, orderly. Broken gangs are let go; the first error of the others is thrown at the end. Again:
  // nothing.
  void close(int64_t timeout_ms);
  // Local, any thread: breaks root and every gang that was made here.
  void abort(const Error& error) noexcept;

 private:
  friend GangsPtr create_gangs(GangPtr root, const MeshOptions& options);
  friend GangsPtr create_parallel_gangs(GangPtr root, int tp, int pp, int cp);
  friend GangsPtr create_gangs_of(const GangPlaces& places);
  static GangsPtr create(const GangPtr& root, bool owns_root, const MeshOptions& options);
  Gangs(GangPtr root, const Mesh& mesh, bool owns_root);
  const GangPtr& made(AxisSet axes) const;
  void make_all();  // collective over root, in the same order on all ranks
  GangPtr make(AxisSet plain);

  GangPtr root_;
  Mesh mesh_;
  Coordinates coordinates_{};
  mutable std::mutex mutex_;           // what follows
  std::map<AxisSet, GangPtr> places_;  // of every set; does not change after creation
  std::map<int, GangPtr> parts_;       // by fsdp_part's number
  std::vector<GangPtr> owned_;         // to close, in the order they were made
  bool closed_ = false;
};

}  // namespace gangway

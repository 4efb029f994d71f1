// The mesh layer: ranks in a grid of named axes, and a gang for each axis or product of axes.
//
// Belongs here: degrees, coordinates, which ranks form which gang, the gangs themselves, the stack of current
// gangs. Does not belong here: what is sharded over an axis (parallel), how a gang moves bytes (gang).
//
// Mesh is a value: plain arithmetic on degrees, without gangs. Everything in this header is local.
//
// Thread rule: values.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gangway {

// From slowest to fastest: rank = (((pp * R + rep) * D + shard) * C + cp) * T + tp.
enum class Axis : uint8_t { pp, dp_replicate, dp_shard, cp, tp };
constexpr int kAxes = 5;
const char* name(Axis axis) noexcept;  // "dp_shard"

// A product of axes: bit i stands for Axis i. The axes in it are always in the mesh's order.
using AxisSet = uint8_t;
constexpr AxisSet axis_bit(Axis axis) { return static_cast<AxisSet>(1u << static_cast<unsigned>(axis)); }
constexpr AxisSet kAllAxes = (1u << kAxes) - 1;
constexpr AxisSet kDataAxes = axis_bit(Axis::dp_replicate) | axis_bit(Axis::dp_shard);  // "dp"

// Parses a product such as "dp_shard+cp", with the axes in any order. dp, rdp and sdp stand for
// dp_replicate+dp_shard, dp_replicate and dp_shard. INVALID_ARGUMENT: an axis is unknown or named twice, or
// there is none.
AxisSet parse_axes(std::string_view text);
std::string axes_text(AxisSet axes);  // "dp_shard+cp"

// The degrees of a mesh. At most one may be -1, "auto": the ranks that the other degrees leave.
struct MeshOptions {
  int pp = 1;
  int dp_replicate = 1;
  int dp_shard = -1;
  int cp = 1;
  int tp = 1;
};
// Returns the degrees of a preset. auto is the size of the gang divided by the other degrees:
//   single    one rank                              tp        tp auto
//   ddp       dp_replicate auto                     tp+fsdp   tp = ranks of a node, dp_shard auto
//   fsdp      dp_shard auto                         pp        pp auto
//   hsdp      dp_shard = ranks of a node,           3d        pp 2, tp 2, dp_shard auto
//             dp_replicate auto
// INVALID_ARGUMENT: the name is unknown, or node_size is below 1.
MeshOptions mesh_preset(std::string_view preset, int node_size);
// Returns text such as "pp 1 x dp_replicate 1 x dp_shard auto x cp 1 x tp 2".
std::string describe(const MeshOptions& options);

using Coordinates = std::array<int, kAxes>;  // indexed by Axis

class Mesh {
 public:
  // Resolves the degrees for a gang of `size` ranks. INVALID_ARGUMENT: a degree is neither -1 nor at least 1,
  // two degrees are auto, or the product is not `size` (the text has the whole equation).
  static Mesh resolve(const MeshOptions& options, int size);

  int degree(Axis axis) const { return degrees_[static_cast<size_t>(axis)]; }
  int degree(AxisSet axes) const;  // the product of the axes' degrees
  int size() const { return degree(kAllAxes); }
  MeshOptions options() const;  // with every degree resolved

  Coordinates coordinates(int rank) const;
  int rank(const Coordinates& at) const;

  // Returns the ranks that differ from `rank` over these axes only, in the mesh's order, which is ascending.
  std::vector<int> group(AxisSet axes, int rank) const;
  // Returns all such groups, ordered by their first ranks.
  std::vector<std::vector<int>> groups(AxisSet axes) const;
  // Removes the axes of degree 1. Sets that are equal after that have equal groups.
  AxisSet without_trivial_axes(AxisSet axes) const;

 private:
  std::array<int, kAxes> degrees_{};
};

}  // namespace gangway

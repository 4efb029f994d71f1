// The mesh layer: ranks in a grid of named axes, and a gang for each axis or product of axes.
//
// Belongs here: degrees, coordinates, which ranks form which gang, the gangs themselves, the stack of current
// gangs. Does not: what is sharded over an axis (parallel), how a gang moves bytes (gang).
//
// Mesh is a value: plain arithmetic on degrees, no gang. Everything in this header is local. Thread rule:
// values.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gangway {

// Slowest to fastest: rank = (((pp * R + rep) * D + shard) * C + cp) * T + tp.
enum class Axis : uint8_t { pp, dp_replicate, dp_shard, cp, tp };
constexpr int kAxes = 5;
const char* name(Axis axis) noexcept;  // "dp_shard"

// A product of axes: bit i stands for Axis i. The order of the axes in it is always the mesh's.
using AxisSet = uint8_t;
constexpr AxisSet axis_bit(Axis axis) { return static_cast<AxisSet>(1u << static_cast<unsigned>(axis)); }
constexpr AxisSet kAllAxes = (1u << kAxes) - 1;
constexpr AxisSet kDataAxes = axis_bit(Axis::dp_replicate) | axis_bit(Axis::dp_shard);  // "dp"

// "dp_shard+cp", in any order; dp, rdp and sdp are dp_replicate+dp_shard, dp_replicate and dp_shard.
// INVALID_ARGUMENT: an unknown axis, one named twice, none.
AxisSet parse_axes(std::string_view text);
std::string axes_text(AxisSet axes);  // "dp_shard+cp"

// Degrees; at most one is -1, "auto": what the others leave of the gang.
struct MeshOptions {
  int pp = 1;
  int dp_replicate = 1;
  int dp_shard = -1;
  int cp = 1;
  int tp = 1;
};
// The degrees of a preset; auto is what the others leave of the gang:
//   single    one rank                              tp        tp auto
//   ddp       dp_replicate auto                     tp+fsdp   tp = ranks of a node, dp_shard auto
//   fsdp      dp_shard auto                         pp        pp auto
//   hsdp      dp_shard = ranks of a node,           3d        pp 2, tp 2, dp_shard auto
//             dp_replicate auto
// INVALID_ARGUMENT: another name, node_size < 1.
MeshOptions mesh_preset(std::string_view preset, int node_size);
std::string describe(const MeshOptions& options);  // "pp 1 x dp_replicate 1 x dp_shard auto x cp 1 x tp 2"

using Coordinates = std::array<int, kAxes>;  // by Axis

class Mesh {
 public:
  // INVALID_ARGUMENT: a degree that is neither -1 nor at least 1, two autos, a product other than `size` (the
  // text has the whole equation).
  static Mesh resolve(const MeshOptions& options, int size);

  int degree(Axis axis) const { return degrees_[static_cast<size_t>(axis)]; }
  int degree(AxisSet axes) const;  // product
  int size() const { return degree(kAllAxes); }
  MeshOptions options() const;  // with every degree resolved

  Coordinates coordinates(int rank) const;
  int rank(const Coordinates& at) const;

  // The ranks that differ from `rank` over these axes alone, in the mesh's order (so also ascending).
  std::vector<int> group(AxisSet axes, int rank) const;
  // Every such group, by its first rank.
  std::vector<std::vector<int>> groups(AxisSet axes) const;
  // Without the axes of degree 1: equal sets have equal groups.
  AxisSet without_ones(AxisSet axes) const;

 private:
  std::array<int, kAxes> degrees_{};
};

}  // namespace gangway

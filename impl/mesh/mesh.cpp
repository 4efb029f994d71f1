#include "mesh/mesh.h"

#include <algorithm>

#include "base/error.h"

namespace gangway {
namespace {

std::array<int, kAxes> degrees_of(const MeshOptions& o) {
  return {o.pp, o.dp_replicate, o.dp_shard, o.cp, o.tp};
}

AxisSet parse_axis(std::string_view word, std::string_view whole) {
  if (word == "dp") return kDataAxes;
  if (word == "rdp") return axis_bit(Axis::dp_replicate);
  if (word == "sdp") return axis_bit(Axis::dp_shard);
  for (int i = 0; i < kAxes; ++i)
    if (word == name(static_cast<Axis>(i))) return axis_bit(static_cast<Axis>(i));
  fail(Code::invalid_argument, "axis \"", word, "\" in \"", whole,
       "\" is unknown (pp, dp_replicate, dp_shard, cp, tp; dp, rdp, sdp)");
}

}  // namespace

const char* name(Axis axis) noexcept {
  switch (axis) {
    case Axis::pp: return "pp";
    case Axis::dp_replicate: return "dp_replicate";
    case Axis::dp_shard: return "dp_shard";
    case Axis::cp: return "cp";
    case Axis::tp: return "tp";
  }
  return "unknown";
}

AxisSet parse_axes(std::string_view whole) {
  AxisSet axes = 0;
  for (size_t at = 0; at <= whole.size();) {
    const size_t end = std::min(whole.find('+', at), whole.size());
    const std::string_view word = whole.substr(at, end - at);
    const AxisSet named = parse_axis(word, whole);
    if ((axes & named) != 0)
      fail(Code::invalid_argument, "axis \"", word, "\" in \"", whole, "\" is named twice");
    axes |= named;
    at = end + 1;
  }
  return axes;
}

std::string axes_text(AxisSet axes) {
  std::string s;
  for (int i = 0; i < kAxes; ++i) {
    if ((axes & axis_bit(static_cast<Axis>(i))) == 0) continue;
    if (!s.empty()) s += '+';
    s += name(static_cast<Axis>(i));
  }
  return s;
}

MeshOptions mesh_preset(std::string_view preset, int node_size) {
  if (node_size < 1) fail(Code::invalid_argument, "mesh: a node has ", node_size, " ranks; at least 1");
  using P = std::pair<std::string_view, MeshOptions>;
  const P presets[] = {
      {"single", {.dp_shard = 1}},
      {"ddp", {.dp_replicate = -1, .dp_shard = 1}},
      {"fsdp", {}},
      {"hsdp", {.dp_replicate = -1, .dp_shard = node_size}},
      {"tp", {.dp_shard = 1, .tp = -1}},
      {"tp+fsdp", {.tp = node_size}},
      {"pp", {.pp = -1, .dp_shard = 1}},
      {"3d", {.pp = 2, .tp = 2}},
  };
  std::string known;
  for (const auto& [name, options] : presets) {
    if (name == preset) return options;
    known += text(known.empty() ? "" : ", ", name);
  }
  fail(Code::invalid_argument, "mesh: no preset \"", preset, "\"; there are ", known);
}

std::string describe(const MeshOptions& options) {
  const std::array<int, kAxes> degrees = degrees_of(options);
  std::string s;
  for (int i = 0; i < kAxes; ++i) {
    const int d = degrees[static_cast<size_t>(i)];
    s += text(i == 0 ? "" : " x ", name(static_cast<Axis>(i)), " ", d == -1 ? "auto" : std::to_string(d));
  }
  return s;
}

Mesh Mesh::resolve(const MeshOptions& options, int size) {
  Mesh mesh;
  mesh.degrees_ = degrees_of(options);
  int automatic = -1;
  int64_t product = 1;  // of the other degrees; it stops growing once it exceeds any size
  for (int i = 0; i < kAxes; ++i) {
    const int d = mesh.degrees_[static_cast<size_t>(i)];
    if (d != -1 && d < 1)
      fail(Code::invalid_argument, "mesh: ", name(static_cast<Axis>(i)), " is ", d,
           ", but a degree is at least 1, or -1 for what the others leave");
    if (d == -1 && automatic >= 0)
      fail(Code::invalid_argument, "mesh: at most one degree is auto, but ",
           name(static_cast<Axis>(automatic)), " and ", name(static_cast<Axis>(i)), " are");
    if (d == -1) automatic = i;
    if (d > 0 && product <= INT64_MAX / INT32_MAX) product *= d;
  }
  if (automatic >= 0 && size % product == 0) {
    mesh.degrees_[static_cast<size_t>(automatic)] = static_cast<int>(size / product);
    return mesh;
  }
  if (automatic >= 0)
    fail(Code::invalid_argument, describe(options), " = ", product, " x auto, but the root gang has ", size,
         " ranks");
  if (product != size)
    fail(Code::invalid_argument, describe(options), " = ", product, ", but the root gang has ", size,
         " ranks");
  return mesh;
}

int Mesh::degree(AxisSet axes) const {
  int product = 1;
  for (int i = 0; i < kAxes; ++i)
    if ((axes & axis_bit(static_cast<Axis>(i))) != 0) product *= degrees_[static_cast<size_t>(i)];
  return product;
}

MeshOptions Mesh::options() const {
  return {degree(Axis::pp), degree(Axis::dp_replicate), degree(Axis::dp_shard), degree(Axis::cp),
          degree(Axis::tp)};
}

Coordinates Mesh::coordinates(int rank) const {
  Coordinates at{};
  for (size_t i = kAxes; i-- > 0; rank /= degrees_[i]) at[i] = rank % degrees_[i];
  return at;
}

int Mesh::rank(const Coordinates& at) const {
  int rank = 0;
  for (size_t i = 0; i < kAxes; ++i) rank = rank * degrees_[i] + at[i];
  return rank;
}

std::vector<int> Mesh::group(AxisSet axes, int rank) const {
  Coordinates at = coordinates(rank);
  std::vector<int> ranks;
  for (int member = 0, all = degree(axes); member < all; ++member) {
    int rest = member;
    for (size_t i = kAxes; i-- > 0;) {
      if ((axes & axis_bit(static_cast<Axis>(i))) == 0) continue;
      at[i] = rest % degrees_[i];
      rest /= degrees_[i];
    }
    ranks.push_back(this->rank(at));  // which grows with `member`
  }
  return ranks;
}

std::vector<std::vector<int>> Mesh::groups(AxisSet axes) const {
  std::vector<std::vector<int>> all;
  for (int r = 0; r < size(); ++r) {
    const Coordinates at = coordinates(r);
    bool is_first = true;
    for (size_t i = 0; i < kAxes; ++i)
      is_first = is_first && ((axes & axis_bit(static_cast<Axis>(i))) == 0 || at[i] == 0);
    if (is_first) all.push_back(group(axes, r));
  }
  return all;
}

AxisSet Mesh::without_trivial_axes(AxisSet axes) const {
  for (int i = 0; i < kAxes; ++i)
    if (degrees_[static_cast<size_t>(i)] == 1) axes &= static_cast<AxisSet>(~axis_bit(static_cast<Axis>(i)));
  return axes;
}

}  // namespace gangway

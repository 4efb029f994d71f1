#include "tensor/layout.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace gangway {

namespace {

void narrow(Box& box, const Placement& placement, int index) {
  if (placement.kind != Placement::Kind::shard) return;
  const auto i = static_cast<size_t>(index);
  box.first[static_cast<size_t>(placement.dim)] += placement.bounds[i];
  box.shape[placement.dim] = placement.bounds[i + 1] - placement.bounds[i];
}

bool has_factor(const std::string& product, const std::string& axis) {
  return ("+" + product + "+").find("+" + axis + "+") != std::string::npos;
}

// Returns whether two products of axes share a factor.
bool overlap(const std::string& a, const std::string& b) {
  for (size_t from = 0, to = 0; to != std::string::npos; from = to + 1) {
    to = b.find('+', from);
    if (has_factor(a, b.substr(from, to - from))) return true;
  }
  return false;
}

void check_bounds(const Placement& p, int64_t rows, const std::string& name) {
  if (p.bounds.size() < 2 || p.bounds.front() != 0 || p.bounds.back() != rows ||
      !std::is_sorted(p.bounds.begin(), p.bounds.end()))
    fail(Code::invalid_argument, "parameter ", name, ": its bounds over ", p.axis, " must rise from 0 to ",
         rows, ", the rows of dim ", p.dim, " that are left to split");
}

}  // namespace

Placement Placement::shard(std::string axis, int dim, std::vector<int64_t> bounds) {
  return {Kind::shard, std::move(axis), dim, std::move(bounds)};
}
Placement Placement::replicate(std::string axis) { return {Kind::replicate, std::move(axis), 0, {}}; }
Placement Placement::partial(std::string axis) { return {Kind::partial, std::move(axis), 0, {}}; }
Placement Placement::varying(std::string axis) { return {Kind::varying, std::move(axis), 0, {}}; }

std::vector<int64_t> ceil_bounds(int64_t n, int64_t ranks) {
  const int64_t rows = (n + ranks - 1) / ranks;
  std::vector<int64_t> bounds;
  for (int64_t r = 0; r <= ranks; ++r) bounds.push_back(std::min(n, r * rows));
  return bounds;
}

std::vector<int64_t> balanced_bounds(int64_t n, int64_t ranks) {
  std::vector<int64_t> bounds;
  for (int64_t r = 0; r <= ranks; ++r) bounds.push_back(n / ranks * r + std::min(r, n % ranks));
  return bounds;
}

Box whole_box(const Shape& shape) { return {{}, shape}; }

Tensor slice(const Tensor& tensor, const Box& box) {
  Tensor part = tensor;
  for (int d = 0; d < box.shape.rank(); ++d)
    part = part.slice(d, box.first[static_cast<size_t>(d)], box.last(d));
  return part;
}

Box local_box(const Layout& layout, const Shape& global, std::span<const int> place) {
  GW_CHECK(place.size(), ==, layout.size());
  Box box = whole_box(global);
  for (size_t i = 0; i < layout.size(); ++i) narrow(box, layout[i], place[i]);
  return box;
}

Box compute_box(const Layout& layout, const Shape& global, std::span<const int> place) {
  GW_CHECK(place.size(), ==, layout.size());
  Box box = whole_box(global);
  for (size_t i = 0; i < layout.size(); ++i)
    if (!layout[i].at_rest) narrow(box, layout[i], place[i]);
  return box;
}

const Placement* find_axis(const Layout& layout, const std::string& axis) {
  const auto found = std::find_if(layout.begin(), layout.end(),
                                  [&](const Placement& p) { return has_factor(p.axis, axis); });
  return found == layout.end() ? nullptr : &*found;
}

std::string shard_axes(const Layout& layout) {
  std::string axes;
  for (const Placement& p : layout)
    if (p.kind == Placement::Kind::shard) axes += (axes.empty() ? "" : "+") + p.axis;
  return axes;
}

void check(const Layout& layout, const Shape& global, std::span<const int> place, const std::string& name) {
  Box box = whole_box(global);
  for (size_t i = 0; i < layout.size(); ++i) {
    const Placement& p = layout[i];
    for (size_t before = 0; before < i; ++before)
      if (overlap(layout[before].axis, p.axis))
        fail(Code::invalid_argument, "parameter ", name, ": two placements over ", layout[before].axis,
             " and ", p.axis, " share an axis");
    if (i > 0 && layout[i - 1].at_rest && !p.at_rest)
      fail(Code::invalid_argument, "parameter ", name, ": the placement over ", p.axis, " must come before ",
           layout[i - 1].axis, ", which splits what compute does not see");
    if (p.kind != Placement::Kind::shard) continue;
    if (p.dim < 0 || p.dim >= global.rank())
      fail(Code::invalid_argument, "parameter ", name, " ", global.text(), " has no dim ", p.dim,
           " to split over ", p.axis);
    check_bounds(p, box.shape[p.dim], name);
    if (place[i] < 0 || static_cast<size_t>(place[i]) + 1 >= p.bounds.size())
      fail(Code::invalid_argument, "parameter ", name, ": its layout has ", p.bounds.size() - 1,
           " pieces over ", p.axis, ", but this rank has index ", place[i]);
    narrow(box, p, place[i]);
  }
}

std::string describe(const Layout& layout) {
  std::string s;
  for (const Placement& p : layout) {
    if (!s.empty()) s += ", ";
    s += p.axis + ": ";
    switch (p.kind) {
      case Placement::Kind::shard: s += "Shard(" + std::to_string(p.dim) + ")"; break;
      case Placement::Kind::replicate: s += "Replicate"; break;
      case Placement::Kind::partial: s += "Partial"; break;
      case Placement::Kind::varying: s += "Varying"; break;
    }
  }
  return s.empty() ? "replicated" : s;
}

}  // namespace gangway

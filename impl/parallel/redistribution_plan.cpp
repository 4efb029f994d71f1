#include "parallel/redistribution_plan.h"

#include <algorithm>
#include <optional>

#include "base/error.h"

namespace gangway {
namespace {

using Kind = Placement::Kind;
using Bounds = std::vector<int64_t>;

// Plans the way from one layout to another for one rank. It ignores axes of one rank.
class Planner {
 public:
  Planner(const Layout& from, const Layout& to, const RankGrid& grid)
      : from_(from), to_(to), grid_(grid), title_(describe(from) + " -> " + describe(to)) {}

  void check() const {
    check_axes(from_);
    check_axes(to_);
    for (const RankGrid::Axis& axis : grid_.axes) check_pair(axis);
  }

  RedistributionPlan plan(const Shape& local) {
    check();
    global_ = global_shape(local);
    now_ = resolved(from_, places());
    goal_ = resolved(to_, places());
    RedistributionPlan plan{local, local, {}};
    while (std::optional<Move> move = next(plan.after)) {
      plan.after = move->after;
      plan.moves.push_back(std::move(*move));
    }
    return plan;
  }

 private:
  template <typename... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    fail(Code::invalid_argument, "redistribute ", title_, ": ", parts...);
  }

  // --- checks that do not depend on the shape

  int find(const std::string& axis) const {
    for (size_t i = 0; i < grid_.axes.size(); ++i)
      if (grid_.axes[i].name == axis) return static_cast<int>(i);
    return -1;
  }
  const RankGrid::Axis& axis_of(const Placement& p) const {
    return grid_.axes[static_cast<size_t>(find(p.axis))];
  }

  void check_axes(const Layout& layout) const {
    for (size_t i = 0; i < layout.size(); ++i) {
      const Placement& p = layout[i];
      if (find(p.axis) < 0) refuse("there is no axis ", p.axis, " in the grid (", axes_text(), ")");
      for (size_t k = 0; k < i; ++k)
        if (layout[k].axis == p.axis) refuse("two placements over ", p.axis);
      if (p.at_rest) refuse("the placement over ", p.axis, " is one at rest, which compute does not see");
      if (p.kind != Kind::shard || p.bounds.empty()) continue;
      const auto ranks = static_cast<size_t>(axis_of(p).size);
      if (p.bounds.size() != ranks + 1)
        refuse(p.bounds.size(), " bounds over ", p.axis, ", which has ", ranks, " ranks and needs ",
               ranks + 1);
      if (p.bounds.front() != 0 || !std::is_sorted(p.bounds.begin(), p.bounds.end()))
        refuse("the bounds over ", p.axis, " must rise from 0");
    }
  }

  std::string axes_text() const {
    std::string words;
    for (const RankGrid::Axis& axis : grid_.axes) words += (words.empty() ? "" : ", ") + axis.name;
    return words;
  }

  static Placement placement(const Layout& layout, const std::string& axis) {
    for (const Placement& p : layout)
      if (p.axis == axis) return p;
    return Placement::replicate(axis);
  }

  void check_pair(const RankGrid::Axis& axis) const {
    const Kind from = placement(from_, axis.name).kind, to = placement(to_, axis.name).kind;
    const bool gathers = to == Kind::replicate || to == Kind::varying;
    switch (from) {
      case Kind::shard:
      case Kind::partial:
        if (to == Kind::shard || gathers || to == from) return;
        break;
      case Kind::replicate:
        if (to == Kind::shard || gathers) return;
        break;
      case Kind::varying:
        if (to == from) return;
        break;
    }
    refuse("no collective over ", axis.name, " makes ", describe({placement(to_, axis.name)}), " of ",
           describe({placement(from_, axis.name)}));
  }

  // --- layouts with explicit bounds

  std::vector<int> places() const {
    std::vector<int> all;
    for (const RankGrid::Axis& axis : grid_.axes) all.push_back(axis.index);
    return all;
  }

  void need_dim(const Placement& p, const Shape& shape) const {
    if (p.dim < 0 || p.dim >= shape.rank()) refuse(shape.text(), " has no dim ", p.dim, " (", p.axis, ")");
  }

  Shape global_shape(const Shape& local) const {
    Shape shape = local;
    for (size_t i = from_.size(); i-- > 0;) {
      const Placement& p = from_[i];
      if (p.kind != Kind::shard) continue;
      need_dim(p, local);
      const RankGrid::Axis& axis = axis_of(p);
      if (p.bounds.empty()) {
        shape[p.dim] *= axis.size;
        continue;
      }
      const auto k = static_cast<size_t>(axis.index);
      if (const int64_t rows = p.bounds[k + 1] - p.bounds[k]; shape[p.dim] != rows)
        refuse("rank ", axis.index, " of ", axis.name, " holds ", rows, " rows of dim ", p.dim, ", but got ",
               shape[p.dim], " (", local.text(), ")");
      shape[p.dim] = p.bounds.back();
    }
    return shape;
  }

  // Returns `layout` as the rank at these places sees it: every shard has bounds, and axes of one rank are
  // left out.
  Layout resolved(const Layout& layout, const std::vector<int>& places) const {
    Shape left = global_;
    Layout result;
    for (Placement p : layout) {
      const RankGrid::Axis& axis = axis_of(p);
      if (p.kind == Kind::shard) {
        need_dim(p, global_);
        const int64_t rows = left[p.dim];
        if (p.bounds.empty() && rows % axis.size != 0)
          refuse("dim ", p.dim, " of ", global_.text(), " has ", rows, " rows to split over ", axis.name,
                 ", not a multiple of its ", axis.size, " ranks");
        if (p.bounds.empty()) p.bounds = balanced_bounds(rows, axis.size);
        if (p.bounds.back() != rows)
          refuse("the bounds over ", axis.name, " end at ", p.bounds.back(), ", but dim ", p.dim, " of ",
                 global_.text(), " has ", rows, " rows to split there");
        const auto k = static_cast<size_t>(places[static_cast<size_t>(find(p.axis))]);
        left[p.dim] = p.bounds[k + 1] - p.bounds[k];
      }
      if (axis.size > 1) result.push_back(std::move(p));
    }
    return result;
  }

  // --- moves

  // Returns the splits of `dim` outside of that over `axis`, outermost first; all splits of `dim` if `axis`
  // does not split it.
  static Layout before(const Layout& layout, int dim, const std::string& axis) {
    Layout splits;
    for (const Placement& p : layout) {
      if (p.axis == axis) break;
      if (p.kind == Kind::shard && p.dim == dim) splits.push_back(p);
    }
    return splits;
  }
  static Layout without(Layout layout, const std::string& axis) {
    std::erase_if(layout, [&](const Placement& p) { return p.axis == axis; });
    return layout;
  }
  static bool is_innermost(const Layout& layout, const Placement& p) {
    const Layout others = without(layout, p.axis);
    return before(layout, p.dim, p.axis) == before(others, p.dim, "");
  }
  bool is_done(const RankGrid::Axis& axis) const {
    const Placement a = placement(now_, axis.name), b = placement(goal_, axis.name);
    return a == b &&
           (a.kind != Kind::shard || before(now_, a.dim, axis.name) == before(goal_, b.dim, axis.name));
  }
  // Returns whether one move over this axis alone gives it the placement of the goal.
  bool can_move(const RankGrid::Axis& axis) const {
    const Placement a = placement(now_, axis.name), b = placement(goal_, axis.name);
    if (a.kind == Kind::shard && !is_innermost(now_, a)) return false;
    return b.kind != Kind::shard ||
           before(without(now_, axis.name), b.dim, "") == before(goal_, b.dim, axis.name);
  }
  // Moves that make the tensor smaller come first, so that later collectives move fewer bytes.
  static int cost(Kind from, Kind to) {
    if (to == Kind::shard) return from == Kind::replicate ? 0 : from == Kind::partial ? 1 : 2;
    return from == Kind::partial ? 3 : from == Kind::shard ? 4 : 0;
  }

  std::optional<Move> next(const Shape& local) {
    while (true) {
      int best = -1, least = 0;
      bool done = true;
      for (size_t i = 0; i < grid_.axes.size(); ++i) {
        const RankGrid::Axis& axis = grid_.axes[i];
        if (axis.size == 1 || is_done(axis)) continue;
        done = false;
        if (!can_move(axis)) continue;
        const int price = cost(placement(now_, axis.name).kind, placement(goal_, axis.name).kind);
        if (best < 0 || price < least) best = static_cast<int>(i), least = price;
      }
      if (done) return std::nullopt;
      if (best < 0) return over_the_grid();
      const RankGrid::Axis& axis = grid_.axes[static_cast<size_t>(best)];
      const Placement a = placement(now_, axis.name), b = placement(goal_, axis.name);
      now_ = without(now_, axis.name);
      now_.push_back(b);
      if (a.kind != Kind::replicate || b.kind == Kind::shard) return over_axis(a, b, local, best);
    }
  }

  // Returns the box of each rank of the axis under `p`, within the joined block of all of them.
  std::vector<Box> boxes(const Placement& p, const Shape& block, int ranks) const {
    std::vector<Box> all(static_cast<size_t>(ranks), whole_box(block));
    if (p.kind == Kind::shard)
      for (size_t r = 0; r < all.size(); ++r) {
        all[r].first[static_cast<size_t>(p.dim)] = p.bounds[r];
        all[r].shape[p.dim] = p.bounds[r + 1] - p.bounds[r];
      }
    return all;
  }

  // Returns the only rank whose box is not empty, or -1.
  static int only_holder(const std::vector<Box>& boxes) {
    int holder = -1;
    for (size_t r = 0; r < boxes.size(); ++r) {
      if (boxes[r].shape.count() == 0) continue;
      if (holder >= 0) return -1;
      holder = static_cast<int>(r);
    }
    return holder;
  }

  static bool are_equal(const std::vector<Box>& boxes) {
    return std::all_of(boxes.begin(), boxes.end(),
                       [&](const Box& box) { return box.shape == boxes[0].shape; });
  }

  Move over_axis(const Placement& a, const Placement& b, const Shape& local, int number) const {
    const RankGrid::Axis& axis = grid_.axes[static_cast<size_t>(number)];
    const auto own = static_cast<size_t>(axis.index);
    Shape block = local;
    if (a.kind == Kind::shard) block[a.dim] = a.bounds.back();
    const std::vector<Box> from = boxes(a, block, axis.size), to = boxes(b, block, axis.size);
    Move move{MoveKind::all_reduce,      number, local, to[own].shape, {whole_box(local)},
              {whole_box(to[own].shape)}};
    if (a.kind == Kind::shard && b.kind == Kind::shard) {
      move = plan_exchange(from, to, axis.index, number);
      move.equal = a.dim != b.dim && are_equal(from) && are_equal(to);
      return move;
    }
    if (a.kind == Kind::shard) {
      move.root = only_holder(from);
      move.kind = move.root < 0 ? MoveKind::all_gather : MoveKind::broadcast;
      if (move.root < 0) move.got = from;
    } else if (b.kind == Kind::shard && a.kind == Kind::partial) {
      move.root = only_holder(to);
      move.kind = move.root < 0 ? MoveKind::reduce_scatter : MoveKind::reduce;
      if (move.root < 0) move.sent = to;
    } else if (b.kind == Kind::shard) {
      move.kind = MoveKind::slice;
      move.sent = {to[own]};
    }
    return move;
  }

  std::vector<int> places_of(int rank) const {
    std::vector<int> places(grid_.axes.size());
    for (size_t i = places.size(); i-- > 0; rank /= grid_.axes[i].size) places[i] = rank % grid_.axes[i].size;
    return places;
  }
  Box box(const Layout& layout, const std::vector<int>& places) const {
    const Layout whole = resolved(layout, places);
    std::vector<int> own;
    for (const Placement& p : whole) own.push_back(places[static_cast<size_t>(find(p.axis))]);
    return local_box(whole, global_, own);
  }

  // Moves pieces that are nested in another order in one exchange between all ranks. Along axes that do not
  // split the value, ranks exchange nothing.
  Move over_the_grid() {
    int ranks = 1, own = 0;
    for (const RankGrid::Axis& axis : grid_.axes) {
      const Placement a = placement(now_, axis.name), b = placement(goal_, axis.name);
      if (axis.size > 1 && !(a.kind == Kind::shard && b.kind == Kind::shard) && !(a == b))
        fail(
            Code::not_supported, "redistribute ", title_, ": ", axis.name,
            " cannot change in one move beside the nested splits of the other axes; use two redistributions");
      own = own * axis.size + axis.index;
      ranks *= axis.size;
    }
    std::vector<Box> from, to;
    for (int r = 0; r < ranks; ++r) {
      const std::vector<int> places = places_of(r);
      const bool meets = meets_this_rank(places);
      from.push_back(meets ? box(now_, places) : Box{{}, empty()});
      to.push_back(meets ? box(goal_, places) : Box{{}, empty()});
    }
    now_ = goal_;
    return plan_exchange(from, to, own, kWholeGrid);
  }
  bool meets_this_rank(const std::vector<int>& places) const {
    for (size_t i = 0; i < places.size(); ++i)
      if (placement(goal_, grid_.axes[i].name).kind != Kind::shard && places[i] != grid_.axes[i].index)
        return false;
    return true;
  }
  Shape empty() const {
    Shape none = global_;
    for (int d = 0; d < none.rank(); ++d) none[d] = 0;
    return none;
  }

  const Layout& from_;
  const Layout& to_;
  const RankGrid& grid_;
  const std::string title_;
  Shape global_;
  Layout now_, goal_;
};

Box common(const Box& a, const Box& b) {
  Box both = a;
  for (int d = 0; d < a.shape.rank(); ++d) {
    const auto i = static_cast<size_t>(d);
    both.first[i] = std::max(a.first[i], b.first[i]);
    both.shape[d] = std::max<int64_t>(0, std::min(a.last(d), b.last(d)) - both.first[i]);
  }
  return both;
}

// Returns `part` in coordinates relative to `origin`. An empty part starts at 0.
Box relative(Box part, const Box& origin) {
  const bool none = part.shape.count() == 0;
  for (int d = 0; d < part.shape.rank(); ++d) {
    const auto i = static_cast<size_t>(d);
    part.first[i] = none ? 0 : part.first[i] - origin.first[i];
    if (none) part.shape[d] = 0;
  }
  return part;
}

}  // namespace

const char* name(MoveKind kind) noexcept {
  switch (kind) {
    case MoveKind::slice: return "slice";
    case MoveKind::all_gather: return "all_gather";
    case MoveKind::broadcast: return "broadcast";
    case MoveKind::reduce_scatter: return "reduce_scatter";
    case MoveKind::reduce: return "reduce";
    case MoveKind::all_reduce: return "all_reduce";
    case MoveKind::exchange: return "exchange";
  }
  return "unknown";
}

std::string RedistributionPlan::text() const {
  std::string words;
  for (const Move& move : moves)
    words += (words.empty() ? "" : ", ") + std::string(name(move.kind)) + " " +
             (move.axis == kWholeGrid ? "grid" : std::to_string(move.axis));
  return words.empty() ? "none" : words;
}

Layout conjugate(Layout layout) {
  for (Placement& p : layout) switch (p.kind) {
      case Kind::shard:
      case Kind::replicate: break;
      case Kind::partial: p.kind = Kind::varying; break;
      case Kind::varying: p.kind = Kind::partial; break;
    }
  return layout;
}

void check_redistribution(const Layout& from, const Layout& to, const RankGrid& grid) {
  Planner(from, to, grid).check();
}

RedistributionPlan plan_redistribution(const Layout& from, const Layout& to, const RankGrid& grid,
                                       const Shape& local) {
  return Planner(from, to, grid).plan(local);
}

Move plan_exchange(const std::vector<Box>& from, const std::vector<Box>& to, int rank, int axis) {
  const Box &mine = from[static_cast<size_t>(rank)], &wanted = to[static_cast<size_t>(rank)];
  Move move{MoveKind::exchange, axis, mine.shape, wanted.shape, {}, {}};
  for (size_t r = 0; r < from.size(); ++r) {
    move.sent.push_back(relative(common(mine, to[r]), mine));
    move.got.push_back(relative(common(from[r], wanted), wanted));
  }
  return move;
}

}  // namespace gangway

#include "parallel/partition.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "gang/agreement.h"
#include "parallel/collective_call.h"
#include "parallel/redistribute.h"

namespace gangway {
namespace {

using Plan = std::shared_ptr<const RedistributionPlan>;

const std::string kAxis = "group";

bool is_joint(Movement m) {  // whether it moves between two partitions
  return m == Movement::broadcast || m == Movement::sum_reduce || m == Movement::repartition;
}
bool is_along_one_dim(Movement m) { return m == Movement::all_gather || m == Movement::reduce_scatter; }

// --- workers exchange the dtypes and shapes of their tensors

struct Told {
  DType dtype = DType{};
  Shape shape;
};

std::string pack(const Tensor& x) {
  const auto dtype = static_cast<uint32_t>(x.dtype());
  std::string bytes(reinterpret_cast<const char*>(&dtype), sizeof dtype);
  const std::span<const int64_t> dims = x.shape().dims();
  return bytes.append(reinterpret_cast<const char*>(dims.data()), dims.size_bytes());
}

Told unpack(const std::string& bytes) {
  uint32_t dtype;
  std::memcpy(&dtype, bytes.data(), sizeof dtype);
  std::vector<int64_t> dims((bytes.size() - sizeof dtype) / sizeof(int64_t));
  std::memcpy(dims.data(), bytes.data() + sizeof dtype, dims.size() * sizeof(int64_t));
  return {static_cast<DType>(dtype), Shape(dims)};
}

std::vector<Told> tell(Gang& gang, const Tensor& x) {
  std::vector<Told> all;
  for (const std::string& bytes : gang.agreement().all_gather_bytes(Channel::control, pack(x)))
    all.push_back(unpack(bytes));
  return all;
}

// --- the plan of one call: the collectives of forward and of backward

// One collective of a group. A rank that has no input, or wants no output, still takes part.
struct Leg {
  size_t group;
  Plan plan;
  bool has_input, wants_output;
};

struct Trip {
  DType dtype;
  Shape before, after;  // of this rank's input and output
  std::vector<Leg> forward, backward;
};

struct Group {
  Redistribution run;
  GangPtr gang;
  // broadcast and sum_reduce. The root is rank 0 of the gang: the source of a broadcast, the target of a sum.
  // The leaves are the ranks on the other side. This rank may be both.
  bool is_root = false, is_leaf = false;
  bool root_is_leaf = false;  // rank 0 is a leaf, too
};

Group make_group(const GangPtr& gang) {
  return {Redistribution(GridGangs{{{kAxis, gang}}, nullptr}, Channel::user), gang};
}

Plan single(const Move& move, int size) {
  RedistributionPlan plan{move.before, move.after, {}};
  if (size > 1) plan.moves.push_back(move);
  return std::make_shared<const RedistributionPlan>(std::move(plan));
}

class MovementModule final : public Module {
 public:
  MovementModule(Movement movement, const Partition& source, const Partition* target,
                 const MovementOptions& options)
      : movement_(movement), source_(source), options_(options) {
    if (target != nullptr) target_ = *target;
  }

  const char* kind() const override { return name(movement_); }

  // Checks the arguments and creates the gangs of the groups. Collective; an error is thrown by all ranks.
  void set_up() {
    std::vector<int> dims;
    source_.base()->agreement().agree_on([&] { dims = check(); }, said());
    if (!is_joint(movement_))
      join_along(dims);
    else if (movement_ == Movement::repartition)
      join_all();
    else
      join_roots();
    gangs_ = {source_.base()};
    for (const Group& group : groups_) gangs_.push_back(group.gang);
  }

  Values forward(Context& ctx, std::span<const Tensor> inputs, Frame* frame) override {
    const Tensor& x = inputs[0];
    const CollectiveCall call(gangs_, kind());
    call.check([&] { check_input(x); });
    const std::vector<std::vector<Told>> told = call.run([&] { return tell_all(x); });
    auto trip = std::make_unique<Trip>();
    call.check([&] { *trip = plan(x, told); });
    return call.run([&] {
      const Tensor y = make_output(ctx, frame, trip->dtype, trip->after);
      run(ctx, *trip, trip->forward, x, y);
      if (frame != nullptr) {
        const auto forget = [](void* state, void*) { delete static_cast<Trip*>(state); };
        frame->user_states().set(*this, {trip.release(), forget, nullptr});
      }
      return Values{y};
    });
  }

  Values backward(Context& ctx, std::span<const Tensor> dy, Frame& frame) override {
    const auto* const trip = static_cast<const Trip*>(frame.user_states().get(*this));
    const CollectiveCall call(gangs_, kind());
    call.check([&] { check_gradient(trip, dy[0]); }, dy[0] ? "the gradient" : "an absent gradient");
    if (!dy[0]) return {Tensor()};
    return call.run([&] {
      const Tensor dx = frame.allocate_gradient(trip->dtype, trip->before);
      run(ctx, *trip, trip->backward, dy[0], dx);
      if (options_.backward_scale != 1 && dx.count() != 0)
        ctx.ops.scale(dx, options_.backward_scale, ctx.stream);
      return Values{dx};
    });
  }

 private:
  template <typename... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    fail(Code::invalid_argument, kind(), ": ", parts...);
  }

  // --- creation

  std::vector<int> check() const {
    const auto* axes = options_.axes ? &*options_.axes : nullptr;
    const auto* kept = options_.axes_keep ? &*options_.axes_keep : nullptr;
    if (is_joint(movement_) != target_.has_value())
      refuse(target_ ? "takes one partition, but a target is given" : "needs a target partition");
    if (!is_joint(movement_)) {
      const std::vector<int> dims = source_.dims_of(kind(), axes, kept);
      if (is_along_one_dim(movement_) && dims.size() != 1)
        refuse("is along one dim of the partition, but the axes name ", dims.size(), " of its ",
               source_.dims());
      return dims;
    }
    if (axes != nullptr || kept != nullptr)
      refuse("takes no axes; the shapes of the partitions say what is exchanged");
    if (source_.base() != target_->base()) refuse("the partitions are of two gangs; it needs one");
    if (source_.size() == 0 || target_->size() == 0) refuse("a partition has no workers");
    if (movement_ == Movement::repartition && source_.dims() != target_->dims())
      refuse("the source has ", source_.dims(), " dims and the target ", target_->dims(),
             "; they must be equal");
    if (movement_ != Movement::repartition) check_broadcast();
    return {};
  }

  // The partition whose workers are each the root of one group, and the partition whose workers are leaves.
  const Partition& roots() const { return movement_ == Movement::broadcast ? source_ : *target_; }
  const Partition& leaves() const { return movement_ == Movement::broadcast ? *target_ : source_; }
  static std::vector<int> ordered(std::vector<int> list, bool reversed) {
    if (reversed) std::reverse(list.begin(), list.end());
    return list;
  }
  bool reverses_roots() const {
    return movement_ == Movement::broadcast ? options_.transpose_source : options_.transpose_target;
  }
  bool reverses_leaves() const {
    return movement_ == Movement::broadcast ? options_.transpose_target : options_.transpose_source;
  }

  void check_broadcast() const {
    const std::vector<int> few = ordered(roots().shape(), reverses_roots());
    const std::vector<int> many = ordered(leaves().shape(), reverses_leaves());
    if (few.size() > many.size())
      refuse(movement_ == Movement::broadcast ? "the source" : "the target", " has ", few.size(),
             " dims, more than the ", many.size(), " of the other side");
    for (size_t i = 1; i <= few.size(); ++i)
      if (const int n = few[few.size() - i], m = many[many.size() - i]; n != 1 && n != m)
        refuse("dim -", i, " is ", n, " on the side that holds one tensor and ", m,
               " on the other; they must be equal, or the first be 1");
  }

  std::string said() const {
    const auto list = [](const std::optional<std::vector<int>>& dims) {
      if (!dims) return std::string("none");
      std::string words = "[";
      for (const int d : *dims) words += " " + std::to_string(d);
      return words + " ]";
    };
    std::string words = text(kind(), " axes ", list(options_.axes), " axes_keep ", list(options_.axes_keep));
    // A target is the same partition on all ranks, so they compare it here. A movement without a target may
    // be over a sub-topology, which differs between ranks; the members of its gang compare it in join_along.
    if (target_)
      words += text(" from ", source_.text(), options_.transpose_source ? " transposed" : "", " to ",
                    target_->text(), options_.transpose_target ? " transposed" : "");
    return words;
  }

  void join_along(const std::vector<int>& dims) {
    Partition mine = source_;
    if (source_.active() && dims.empty())
      mine = source_.inclusive(std::vector<int>{source_.rank()});
    else if (source_.active())
      mine = source_.subtopology(dims);
    if (!dims.empty()) dim_ = dims[0];
    const GangPtr gang = source_.active() ? source_.base()->split(mine.ranks()[0], mine.rank(), kind())
                                          : source_.base()->split(-1, 0, kind());
    if (gang == nullptr) return;
    gang->agreement().agree(std::nullopt, mine.text());
    groups_.push_back(make_group(gang));
  }

  void join_all() {
    const Partition all = source_.unite(*target_);
    const GangPtr gang = source_.base()->create_gang(all.ranks(), kind());
    if (gang != nullptr) groups_.push_back(make_group(gang));
  }

  // Every rank creates the gangs in the order of the roots, so that a rank of two groups joins them in the
  // same order as its peers.
  void join_roots() {
    for (int root = 0; root < roots().size(); ++root) {
      const int holder = roots().ranks()[static_cast<size_t>(root)];
      std::vector<int> members = {holder};
      bool leaf = false, root_is_leaf = false;
      for (int w = 0; w < leaves().size(); ++w) {
        if (!meets(root, w)) continue;
        const int rank = leaves().ranks()[static_cast<size_t>(w)];
        if (rank != holder) members.push_back(rank);
        root_is_leaf = root_is_leaf || rank == holder;
        leaf = leaf || w == leaves().rank();
      }
      const GangPtr gang = source_.base()->create_gang(members, kind());
      if (gang == nullptr) continue;
      groups_.push_back(make_group(gang));
      groups_.back().is_root = gang->rank() == 0;
      groups_.back().is_leaf = leaf;
      groups_.back().root_is_leaf = root_is_leaf;
    }
  }
  bool meets(int root, int leaf) const {
    const std::vector<int> shape = ordered(roots().shape(), reverses_roots());
    const std::vector<int> few = ordered(roots().index_of(root), reverses_roots());
    const std::vector<int> many = ordered(leaves().index_of(leaf), reverses_leaves());
    for (size_t i = 1; i <= few.size(); ++i)
      if (shape[shape.size() - i] != 1 && few[few.size() - i] != many[many.size() - i]) return false;
    return true;
  }

  // --- planning a call

  void check_input(const Tensor& x) const {
    if (source_.active() || x.count() == 0) return;
    refuse("rank ", source_.base()->rank(), " is no worker of the partition (", source_.text(),
           ") and must pass a tensor of no elements, not ", x.text());
  }

  void check_gradient(const Trip* trip, const Tensor& dy) const {
    if (trip == nullptr)
      fail(Code::invalid_state, kind(), ": no forward has run in this frame; forward comes first");
    if (!dy || (dy.shape() == trip->after && (dy.count() == 0 || dy.dtype() == trip->dtype))) return;
    refuse("the gradient is ", dy.text(), ", the output was ", gangway::name(trip->dtype), " ",
           trip->after.text());
  }

  // Returns the dtypes and shapes of all members' inputs, for each group of this rank.
  std::vector<std::vector<Told>> tell_all(const Tensor& x) const {
    std::vector<std::vector<Told>> all;
    for (const Group& group : groups_) all.push_back(tell(*group.gang, x));
    return all;
  }

  Shape nothing(const Tensor& x) const {
    if (!source_.active() && !target_) return x.shape();
    return options_.preserve_batch && x.rank() > 0 ? Shape{x.dim(0), 0} : Shape{0};
  }

  Trip plan(const Tensor& x, const std::vector<std::vector<Told>>& told) const {
    if (groups_.empty()) return {x.dtype(), x.shape(), nothing(x), {}, {}};
    if (movement_ == Movement::repartition) return plan_repartition(x, told[0]);
    return is_joint(movement_) ? plan_roots(x, told) : plan_along(x, told[0]);
  }

  // Checks that all members have one dtype and equal shapes, except for dim `cut` (-1: no exception).
  void compare(const std::vector<Told>& all, int cut) const {
    for (size_t r = 0; r < all.size(); ++r) {
      const Shape &first = all[0].shape, &shape = all[r].shape;
      if (is_along_one_dim(movement_) && shape.rank() != source_.dims())
        refuse("member ", r, " of the group has ", shape.text(), ", but the partition has ", source_.dims(),
               " dims");
      bool equal = all[r].dtype == all[0].dtype && shape.rank() == first.rank();
      for (int d = 0; equal && d < shape.rank(); ++d) equal = d == cut || shape[d] == first[d];
      if (equal) continue;
      refuse("member ", r, " of the group has ", gangway::name(all[r].dtype), " ", shape.text(),
             ", member 0 ", gangway::name(all[0].dtype), " ", first.text(),
             cut < 0 ? "; they must be equal" : text("; they must be equal but for dim ", cut));
    }
  }

  Trip plan_along(const Tensor& x, const std::vector<Told>& all) const {
    const Group& group = groups_[0];
    compare(all, movement_ == Movement::all_gather ? dim_ : -1);
    const Placement whole = Placement::varying(kAxis), sum = Placement::partial(kAxis);
    if (movement_ == Movement::all_sum_reduce) return trip(x, sum, whole);
    std::vector<int64_t> bounds = {0};
    for (const Told& told : all) bounds.push_back(bounds.back() + told.shape[dim_]);
    if (movement_ == Movement::all_gather) return trip(x, Placement::shard(kAxis, dim_, bounds), whole);
    return trip(x, sum, Placement::shard(kAxis, dim_, balanced_bounds(x.dim(dim_), group.gang->size())));
  }
  Trip trip(const Tensor& x, const Placement& from, const Placement& to) const {
    const RankGrid grid = groups_[0].run.grid();
    const auto there =
        std::make_shared<RedistributionPlan>(plan_redistribution({from}, {to}, grid, x.shape()));
    const auto back = std::make_shared<RedistributionPlan>(
        plan_redistribution(conjugate({to}), conjugate({from}), grid, there->after));
    return {x.dtype(), x.shape(), there->after, {{0, there, true, true}}, {{0, back, true, true}}};
  }

  // Returns the dtype and shape that move: the root's in a broadcast, those of the leaves in a sum.
  Told value_of(const Group& group, const std::vector<Told>& all) const {
    if (movement_ == Movement::broadcast) return all[0];
    const std::vector<Told> summed(all.begin() + (group.root_is_leaf ? 0 : 1), all.end());
    compare(summed, -1);
    return summed[0];
  }

  Trip plan_roots(const Tensor& x, const std::vector<std::vector<Told>>& told) const {
    Trip trip{x.dtype(), x.shape(), nothing(x), {}, {}};
    const bool spreads = movement_ == Movement::broadcast;
    for (size_t g = 0; g < groups_.size(); ++g) {
      const Group& group = groups_[g];
      const Told value = value_of(group, told[g]);
      const Shape own = group.is_root ? value.shape : Shape{0};
      const int size = group.gang->size();
      const Move out{MoveKind::broadcast, 0, own, value.shape, {whole_box(own)}, {whole_box(value.shape)}, 0};
      const Move in{MoveKind::reduce, 0, value.shape, own, {whole_box(value.shape)}, {whole_box(own)}, 0};
      const Leg spread{g, single(out, size), group.is_root, group.is_leaf};
      const Leg gather{g, single(in, size), group.is_leaf, group.is_root};
      trip.forward.push_back(spreads ? spread : gather);
      trip.backward.push_back(spreads ? gather : spread);
      if (!trip.forward.back().has_input && !trip.forward.back().wants_output) continue;
      trip.dtype = value.dtype;
      if (trip.forward.back().wants_output) trip.after = value.shape;
    }
    return trip;
  }

  // Returns, for each dim, the bounds of the pieces, from the shapes of the tensors of the source's workers.
  std::vector<std::vector<int64_t>> cuts_of(const std::vector<Told>& all) const {
    std::vector<std::vector<int64_t>> rows;
    for (const int n : source_.shape()) rows.emplace_back(static_cast<size_t>(n), -1);
    for (int w = 0; w < source_.size(); ++w) {
      const Told& told = all[static_cast<size_t>(w)];
      if (told.shape.rank() != source_.dims() || told.dtype != all[0].dtype)
        refuse("worker ", w, " has ", gangway::name(told.dtype), " ", told.shape.text(),
               ", but the partition has ", source_.dims(), " dims and worker 0 ",
               gangway::name(all[0].dtype));
      const std::vector<int> at = source_.index_of(w);
      for (int d = 0; d < source_.dims(); ++d) {
        int64_t& known = rows[static_cast<size_t>(d)][static_cast<size_t>(at[static_cast<size_t>(d)])];
        if (known >= 0 && known != told.shape[d])
          refuse("worker ", w, " has ", told.shape[d], " rows of dim ", d,
                 ", a worker at the same place along it ", known);
        known = told.shape[d];
      }
    }
    for (std::vector<int64_t>& of_dim : rows) {
      of_dim.insert(of_dim.begin(), 0);
      std::partial_sum(of_dim.begin(), of_dim.end(), of_dim.begin());
    }
    return rows;
  }

  // Returns the box of the value that each rank holds. It is empty for a rank that is no worker.
  static std::vector<Box> boxes_of(const Partition& partition, const std::vector<std::vector<int64_t>>& cuts,
                                   const std::vector<int>& ranks) {
    std::vector<Box> boxes;
    for (const int rank : ranks) {
      Box box;
      box.shape = Shape(std::vector<int64_t>(cuts.size(), 0));
      const auto found = std::find(partition.ranks().begin(), partition.ranks().end(), rank);
      if (found != partition.ranks().end()) {
        const std::vector<int> at = partition.index_of(static_cast<int>(found - partition.ranks().begin()));
        for (size_t d = 0; d < cuts.size(); ++d) {
          box.first[d] = cuts[d][static_cast<size_t>(at[d])];
          box.shape[static_cast<int>(d)] = cuts[d][static_cast<size_t>(at[d]) + 1] - box.first[d];
        }
      }
      boxes.push_back(box);
    }
    return boxes;
  }

  Trip plan_repartition(const Tensor& x,
                        const std::vector<Told>& all) const {  // `all` begins with the source's workers
    const Gang& gang = *groups_[0].gang;
    const std::vector<std::vector<int64_t>> cuts = cuts_of(all);
    std::vector<std::vector<int64_t>> balanced;
    for (size_t d = 0; d < cuts.size(); ++d)
      balanced.push_back(balanced_bounds(cuts[d].back(), target_->shape()[d]));
    const std::vector<int> ranks = source_.unite(*target_).ranks();
    const std::vector<Box> from = boxes_of(source_, cuts, ranks), to = boxes_of(*target_, balanced, ranks);
    const Plan there = single(plan_exchange(from, to, gang.rank(), 0), gang.size());
    const Plan back = single(plan_exchange(to, from, gang.rank(), 0), gang.size());
    const bool gives = source_.active(), takes = target_->active();
    return {all[0].dtype,
            x.shape(),
            takes ? there->after : nothing(x),
            {{0, there, gives, takes}},
            {{0, back, takes, gives}}};
  }

  // --- running a call

  // Returns the input of a rank that has none of its own: an empty tensor, or zeros for a sum.
  static Tensor stand_in(Context& ctx, DType dtype, const Shape& shape) {
    const Tensor zeros = ctx.temporaries.allocate(dtype, shape);
    if (zeros.count() != 0) ctx.stream.device().zero(zeros.raw(), zeros.bytes(), ctx.stream);
    return zeros;
  }

  void run(Context& ctx, const Trip& trip, const std::vector<Leg>& legs, const Tensor& x,
           const Tensor& y) const {
    const StackScope scope(ctx.temporaries);
    std::vector<Redistribution::Started> started;
    started.reserve(legs.size());
    for (const Leg& leg : legs) {
      const Tensor in = leg.has_input ? x : stand_in(ctx, trip.dtype, leg.plan->before);
      const Tensor out = leg.wants_output ? y : ctx.temporaries.allocate(trip.dtype, leg.plan->after);
      started.push_back(groups_[leg.group].run.start(ctx, leg.plan, in, out));
    }
    for (size_t i = 0; i < legs.size(); ++i) {
      const Tensor result = groups_[legs[i].group].run.finish(ctx, started[i]);
      if (legs[i].wants_output && result.count() != 0 && legs[i].plan->moves.empty())
        ctx.ops.cast(result, y, ctx.stream);
    }
  }

  const Movement movement_;
  const Partition source_;
  std::optional<Partition> target_;
  const MovementOptions options_;
  std::vector<Group> groups_;
  std::vector<GangPtr> gangs_;  // the base gang and the gangs of the groups
  int dim_ = 0;
};

}  // namespace

const char* name(Movement movement) noexcept {
  switch (movement) {
    case Movement::all_gather: return "all_gather";
    case Movement::reduce_scatter: return "reduce_scatter";
    case Movement::all_sum_reduce: return "all_sum_reduce";
    case Movement::broadcast: return "broadcast";
    case Movement::sum_reduce: return "sum_reduce";
    case Movement::repartition: return "repartition";
  }
  return "unknown";
}

ModulePtr make_movement(Movement movement, const Partition& source, const Partition* target,
                        const MovementOptions& options) {
  auto module = std::make_shared<MovementModule>(movement, source, target, options);
  module->set_up();
  return module;
}

}  // namespace gangway

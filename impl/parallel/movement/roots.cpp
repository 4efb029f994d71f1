// broadcast and sum_reduce: each worker on one side, the root, exchanges one tensor with workers on the
// other side, its leaves. The root of a broadcast is a worker of the source, that of a sum_reduce one of the
// target. A group has one root and its leaves. The root is rank 0 of the group's gang, and may be a leaf too.
#include <algorithm>

#include "parallel/movement/algorithm.h"

namespace gangway::movement {
namespace {

// One of the two partitions. Its dims are in the order in which they align with those of the other.
struct Side {
  const Partition& partition;
  bool reversed;

  std::vector<int> shape() const { return ordered(partition.shape()); }
  std::vector<int> index_of(int worker) const { return ordered(partition.index_of(worker)); }
  int rank_of(int worker) const { return partition.ranks()[static_cast<size_t>(worker)]; }

 private:
  std::vector<int> ordered(std::vector<int> dims) const {
    if (reversed) std::reverse(dims.begin(), dims.end());
    return dims;
  }
};

class Roots final : public Algorithm {
 public:
  using Algorithm::Algorithm;

  void check() override {
    check_pair(request_);
    const std::vector<int> few = roots().shape(), many = leaves().shape();
    if (few.size() > many.size())
      request_.refuse(spreads() ? "the source" : "the target", " has ", few.size(), " dims, more than the ",
                      many.size(), " of the other side");
    for (size_t i = 1; i <= few.size(); ++i)
      if (const int n = few[few.size() - i], m = many[many.size() - i]; n != 1 && n != m)
        request_.refuse("dim -", i, " is ", n, " on the side that holds one tensor and ", m,
                        " on the other; they must be equal, or the first be 1");
  }

  // Every rank creates the gangs in the order of the roots, so that a rank of two groups joins them in the
  // same order as its peers.
  void make_groups() override {
    for (int root = 0; root < roots().partition.size(); ++root) {
      const int holder = roots().rank_of(root);
      std::vector<int> members = {holder};
      Role role;
      for (int leaf = 0; leaf < leaves().partition.size(); ++leaf) {
        if (!belongs(leaf, root)) continue;
        const int rank = leaves().rank_of(leaf);
        if (rank != holder) members.push_back(rank);
        role.root_is_leaf = role.root_is_leaf || rank == holder;
        role.is_leaf = role.is_leaf || leaf == leaves().partition.rank();
      }
      const GangPtr gang = request_.source.base()->create_gang(members, name(request_.kind));
      if (gang == nullptr) continue;
      role.is_root = gang->rank() == 0;
      add_group(gang);
      roles_.push_back(role);
    }
  }

  CallPlan plan(const Tensor& x, std::span<const Specs> inputs) const override {
    CallPlan planned{x.dtype(), x.shape(), shape_of_nothing(x), {}, {}};
    for (size_t g = 0; g < groups_.size(); ++g) {
      const Role& role = roles_[g];
      const Spec value = value_of(role, inputs[g]);
      const Shape own = role.is_root ? value.shape : Shape{0};
      const int size = groups_[g].gang->size();
      const Move out{MoveKind::broadcast, 0, own, value.shape, {whole_box(own)}, {whole_box(value.shape)}, 0};
      const Move in{MoveKind::reduce, 0, value.shape, own, {whole_box(value.shape)}, {whole_box(own)}, 0};
      const GroupCall spread{g, plan_of(out, size), role.is_root, role.is_leaf};
      const GroupCall sum{g, plan_of(in, size), role.is_leaf, role.is_root};
      const GroupCall& forward = planned.forward.emplace_back(spreads() ? spread : sum);
      planned.backward.push_back(spreads() ? sum : spread);
      if (!forward.has_input && !forward.wants_output) continue;
      planned.dtype = value.dtype;
      if (forward.wants_output) planned.after = value.shape;
    }
    return planned;
  }

 private:
  // What this rank is in a group, and whether the group's root is one of its leaves.
  struct Role {
    bool is_root = false, is_leaf = false, root_is_leaf = false;
  };

  bool spreads() const { return request_.kind == Movement::broadcast; }
  Side source() const { return {request_.source, request_.options.transpose_source}; }
  Side target() const { return {*request_.target, request_.options.transpose_target}; }
  Side roots() const { return spreads() ? source() : target(); }
  Side leaves() const { return spreads() ? target() : source(); }

  // Returns whether the two workers are in one group: their indices are equal on each dim that both sides
  // have, unless the side of the roots has size 1 there.
  bool belongs(int leaf, int root) const {
    const std::vector<int> shape = roots().shape();
    const std::vector<int> few = roots().index_of(root), many = leaves().index_of(leaf);
    for (size_t i = 1; i <= few.size(); ++i)
      if (shape[shape.size() - i] != 1 && few[few.size() - i] != many[many.size() - i]) return false;
    return true;
  }

  // Returns the dtype and shape that move: the root's in a broadcast, those of the leaves in a sum.
  Spec value_of(const Role& role, const Specs& inputs) const {
    if (spreads()) return inputs[0];
    const Specs summed(inputs.begin() + (role.root_is_leaf ? 0 : 1), inputs.end());
    check_equal(request_, summed, -1, -1);
    return summed[0];
  }

  std::vector<Role> roles_;  // by group
};

}  // namespace

std::unique_ptr<Algorithm> make_roots(Request request) { return std::make_unique<Roots>(std::move(request)); }

}  // namespace gangway::movement

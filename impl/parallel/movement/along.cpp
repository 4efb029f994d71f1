// all_gather, reduce_scatter and all_sum_reduce: workers exchange along dims of one partition. A group has
// the workers whose indices are equal on all other dims. Over no dims each worker is a group of its own, and
// every kind copies.
#include "gang/agreement.h"
#include "parallel/movement/algorithm.h"

namespace gangway::movement {
namespace {

class Along final : public Algorithm {
 public:
  using Algorithm::Algorithm;

  void check() override {
    const MovementOptions& o = request_.options;
    if (request_.target) request_.refuse("takes one partition, but a target is given");
    dims_ = request_.source.dims_of(name(request_.kind), o.axes ? &*o.axes : nullptr,
                                    o.axes_keep ? &*o.axes_keep : nullptr);
    if (request_.kind != Movement::all_sum_reduce && dims_.size() > 1)
      request_.refuse("is along one dim of the partition, but the axes name ", dims_.size(), " of its ",
                      request_.source.dims());
  }

  void make_groups() override {
    const Partition& source = request_.source;
    const Partition mine = members();
    const GangPtr gang = source.active()
                             ? source.base()->split(mine.ranks()[0], mine.rank(), name(request_.kind))
                             : source.base()->split(-1, 0, name(request_.kind));
    if (gang == nullptr) return;
    gang->agreement().agree(std::nullopt, mine.text());
    add_group(gang);
  }

  CallPlan plan(const Tensor& x, std::span<const Specs> inputs) const override {
    const bool gathers = request_.kind == Movement::all_gather;
    const bool along_one_dim = request_.kind != Movement::all_sum_reduce && !dims_.empty();
    check_equal(request_, inputs[0], gathers && along_one_dim ? dims_[0] : -1,
                along_one_dim ? request_.source.dims() : -1);
    const Placement whole = Placement::varying(kAxis), sum = Placement::partial(kAxis);
    if (!along_one_dim) return plan_between(x, sum, whole);
    const int dim = dims_[0];
    if (!gathers) {
      std::vector<int64_t> bounds = balanced_bounds(x.dim(dim), groups_[0].gang->size());
      return plan_between(x, sum, Placement::shard(kAxis, dim, std::move(bounds)));
    }
    std::vector<int64_t> bounds = {0};
    for (const Spec& input : inputs[0]) bounds.push_back(bounds.back() + input.shape[dim]);
    return plan_between(x, Placement::shard(kAxis, dim, std::move(bounds)), whole);
  }

 private:
  // Returns the workers of this rank's group.
  Partition members() const {
    const Partition& source = request_.source;
    if (!source.active()) return source;
    return dims_.empty() ? source.inclusive(std::vector<int>{source.rank()}) : source.subtopology(dims_);
  }

  CallPlan plan_between(const Tensor& x, const Placement& from, const Placement& to) const {
    const RankGrid grid = groups_[0].run.grid();
    const auto there =
        std::make_shared<RedistributionPlan>(plan_redistribution({from}, {to}, grid, x.shape()));
    const auto back = std::make_shared<RedistributionPlan>(
        plan_redistribution(conjugate({to}), conjugate({from}), grid, there->after));
    return {x.dtype(), x.shape(), there->after, {{0, there, true, true}}, {{0, back, true, true}}};
  }

  std::vector<int> dims_;  // the dims of the partition along which workers exchange
};

}  // namespace

std::unique_ptr<Algorithm> make_along(Request request) { return std::make_unique<Along>(std::move(request)); }

}  // namespace gangway::movement

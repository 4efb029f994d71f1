// repartition: workers exchange the parts in which the pieces of the source and those of the target overlap.
// The only group has the workers of both partitions, those of the source first.
#include <algorithm>
#include <numeric>

#include "parallel/movement/algorithm.h"

namespace gangway::movement {
namespace {

using Bounds = std::vector<std::vector<int64_t>>;  // of the pieces, for each dim

// Returns the box of the value that each rank holds. It is empty for a rank that is no worker.
std::vector<Box> boxes_of(const Partition& partition, const Bounds& bounds, const std::vector<int>& ranks) {
  std::vector<Box> boxes;
  for (const int rank : ranks) {
    Box box;
    box.shape = Shape(std::vector<int64_t>(bounds.size(), 0));
    const auto found = std::find(partition.ranks().begin(), partition.ranks().end(), rank);
    if (found != partition.ranks().end()) {
      const std::vector<int> at = partition.index_of(static_cast<int>(found - partition.ranks().begin()));
      for (size_t d = 0; d < bounds.size(); ++d) {
        box.first[d] = bounds[d][static_cast<size_t>(at[d])];
        box.shape[static_cast<int>(d)] = bounds[d][static_cast<size_t>(at[d]) + 1] - box.first[d];
      }
    }
    boxes.push_back(box);
  }
  return boxes;
}

class Repartition final : public Algorithm {
 public:
  using Algorithm::Algorithm;

  void check() override {
    check_pair(request_);
    if (request_.source.dims() != request_.target->dims())
      request_.refuse("the source has ", request_.source.dims(), " dims and the target ",
                      request_.target->dims(), "; they must be equal");
  }

  void make_groups() override {
    const GangPtr gang = request_.source.base()->create_gang(members().ranks(), name(request_.kind));
    if (gang != nullptr) add_group(gang);
  }

  CallPlan plan(const Tensor& x, std::span<const Specs> inputs) const override {
    const Partition &source = request_.source, &target = *request_.target;
    const Gang& gang = *groups_[0].gang;
    const Bounds given = bounds_of(inputs[0]);
    Bounds balanced;
    for (size_t d = 0; d < given.size(); ++d)
      balanced.push_back(balanced_bounds(given[d].back(), target.shape()[d]));
    const Partition all = members();
    const std::vector<Box> from = boxes_of(source, given, all.ranks());
    const std::vector<Box> to = boxes_of(target, balanced, all.ranks());
    const PlanPtr there = plan_of(plan_exchange(from, to, gang.rank(), 0), gang.size());
    const PlanPtr back = plan_of(plan_exchange(to, from, gang.rank(), 0), gang.size());
    const bool gives = source.active(), takes = target.active();
    return {inputs[0][0].dtype,
            x.shape(),
            takes ? there->after : shape_of_nothing(x),
            {{0, there, gives, takes}},
            {{0, back, takes, gives}}};
  }

 private:
  Partition members() const { return request_.source.unite(*request_.target); }

  // Returns the bounds of the source's pieces from the inputs of its workers, with which `inputs` begins.
  Bounds bounds_of(const Specs& inputs) const {
    const Partition& source = request_.source;
    Bounds bounds;
    for (const int n : source.shape()) bounds.emplace_back(static_cast<size_t>(n), -1);
    for (int w = 0; w < source.size(); ++w) {
      const Spec& input = inputs[static_cast<size_t>(w)];
      if (input.shape.rank() != source.dims() || input.dtype != inputs[0].dtype)
        request_.refuse("worker ", w, " has ", input.text(), ", but the partition has ", source.dims(),
                        " dims and worker 0 ", gangway::name(inputs[0].dtype));
      const std::vector<int> at = source.index_of(w);
      for (int d = 0; d < source.dims(); ++d) {
        int64_t& known = bounds[static_cast<size_t>(d)][static_cast<size_t>(at[static_cast<size_t>(d)])];
        if (known >= 0 && known != input.shape[d])
          request_.refuse("worker ", w, " has ", input.shape[d], " rows of dim ", d,
                          ", a worker at the same place along it ", known);
        known = input.shape[d];
      }
    }
    for (std::vector<int64_t>& sizes : bounds) {
      sizes.insert(sizes.begin(), 0);
      std::partial_sum(sizes.begin(), sizes.end(), sizes.begin());
    }
    return bounds;
  }
};

}  // namespace

std::unique_ptr<Algorithm> make_repartition(Request request) {
  return std::make_unique<Repartition>(std::move(request));
}

}  // namespace gangway::movement

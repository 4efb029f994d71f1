#include "parallel/movement/algorithm.h"

namespace gangway::movement {

Shape Algorithm::shape_of_nothing(const Tensor& x) const {
  if (!request_.source.active() && !request_.target) return x.shape();
  return request_.options.preserve_batch && x.rank() > 0 ? Shape{x.dim(0), 0} : Shape{0};
}

void Algorithm::add_group(const GangPtr& gang) {
  const GridGangs::Axis axis{kAxis, gang};
  groups_.push_back({Redistribution(GridGangs{{axis}, nullptr}, Channel::user), gang});
}

void check_pair(const Request& request) {
  if (!request.target) request.refuse("needs a target partition");
  if (request.options.axes || request.options.axes_keep)
    request.refuse("takes no axes; the shapes of the partitions say what is exchanged");
  if (request.source.base() != request.target->base())
    request.refuse("the partitions are of two gangs; it needs one");
  if (request.source.size() == 0 || request.target->size() == 0) request.refuse("a partition has no workers");
}

void check_equal(const Request& request, const Specs& inputs, int cut, int dims) {
  for (size_t r = 0; r < inputs.size(); ++r) {
    const Shape &first = inputs[0].shape, &shape = inputs[r].shape;
    if (dims >= 0 && shape.rank() != dims)
      request.refuse("member ", r, " of the group has ", shape.text(), ", but the partition has ", dims,
                     " dims");
    bool equal = inputs[r].dtype == inputs[0].dtype && shape.rank() == first.rank();
    for (int d = 0; equal && d < shape.rank(); ++d) equal = d == cut || shape[d] == first[d];
    if (equal) continue;
    request.refuse("member ", r, " of the group has ", inputs[r].text(), ", member 0 ", inputs[0].text(),
                   cut < 0 ? "; they must be equal" : text("; they must be equal but for dim ", cut));
  }
}

PlanPtr plan_of(const Move& move, int size) {
  RedistributionPlan plan{move.before, move.after, {}};
  if (size > 1) plan.moves.push_back(move);
  return std::make_shared<const RedistributionPlan>(std::move(plan));
}

}  // namespace gangway::movement

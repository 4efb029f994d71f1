// A parameter of two dims or more is a list of matrices, its last two dims. Its second moment is kept as the
// means of rows and of columns, which have 1 in the dim that they are taken over. A parameter of one dim is a
// list of matrices of one element, whose row means are its second moment.
//
// A step needs sums over all pieces of a tensor at three places: the sums of rows, columns and values; the
// mean of the rows; the size of the update. Each place adds up those of all parameters at once.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "optim/optimizer.h"
#include "optim/rank_sums.h"

namespace gangway {
namespace {

enum State : size_t { kRows, kColumns, kVariance };

constexpr const char* kPipelineAxis = "pp";

// The axes that split the dims for which `splits(dim)` is true, without those of a pipeline: its stages have
// different parameters.
template <typename Splits>
std::string axes_of(Layout layout, Splits&& splits) {
  std::erase_if(layout, [&](const Placement& p) { return p.axis == kPipelineAxis || !splits(p.dim); });
  return shard_axes(layout);
}

// The state of the means over dim `dim`: it has 1 there, which every rank of the dim's axes holds.
Optimizer::Slot means_over(int dim, const Parameter& p) {
  Optimizer::Slot slot{{}, {}, p.shape, {}, {}};
  slot.shape[dim] = 1;
  for (size_t i = 0; i < p.layout.size(); ++i) {
    Placement at = p.layout[i];
    if (at.kind == Placement::Kind::shard && at.dim == dim) {
      if (at.axis != kPipelineAxis) continue;
      for (int64_t& bound : at.bounds) bound = std::min<int64_t>(bound, 1);
    }
    slot.layout.push_back(std::move(at));
    slot.place.push_back(p.place[i]);
  }
  return slot;
}

class Adafactor final : public Optimizer {
 public:
  Adafactor(const OptimizerKind& kind, std::vector<NamedParameter> parameters,
            const OptimizerOptions& options, Ops& ops, std::unique_ptr<WholeTensors> whole)
      : Optimizer(kind, std::move(parameters), options, ops), whole_(std::move(whole)) {
    for (size_t i = 0; i < this->parameters().size(); ++i) {
      if (wants_states(i)) make_states_of(i);
      if (!is_frozen(i) && whole_->holds(parameter(i)) && parameter(i).shape.count() != 0) plan(i);
    }
  }

 private:
  struct Plan {
    size_t i;            // the parameter
    bool factored;       // it has states of rows and columns
    Shape local, whole;  // [matrices, rows, columns]
    // Places in first_, totals_ and update_squares_.
    size_t squares = 0, rows = 0, columns = 0, total = 0, update_squares = 0;
  };

  void make_states_of(size_t i) {
    const Parameter& p = parameter(i);
    if (p.shape.rank() < 2) return add_state(i, kVariance, DType::f32);
    for (const auto& [state, dim] :
         {std::pair<size_t, int>{kRows, -1}, std::pair<size_t, int>{kColumns, -2}}) {
      Slot slot = means_over(p.shape.rank() + dim, p);
      const Shape local = slot.box().shape;
      add_state(i, state, p.dtype, local, std::move(slot));
    }
  }

  static Shape matrices(const Shape& shape) {
    const int rank = shape.rank();
    if (rank < 2) return {shape.count(), 1, 1};
    int64_t count = 1;
    for (int d = 0; d < rank - 2; ++d) count *= shape[d];
    return {count, shape[rank - 2], shape[rank - 1]};
  }

  void plan(size_t i) {
    const Parameter& p = parameter(i);
    const int rank = p.shape.rank();
    Plan plan{i, rank >= 2, matrices(p.shard ? p.shard.shape() : p.local_shape()), matrices(p.shape)};
    const std::string all = axes_of(p.layout, [](int) { return true; });
    const std::string over_rows = axes_of(p.layout, [&](int dim) { return dim == rank - 2; });
    const std::string over_columns = axes_of(p.layout, [&](int dim) { return dim == rank - 1 && rank >= 2; });
    plan.squares = first_.add(all, 1);
    plan.rows = first_.add(over_columns, plan.local[0] * plan.local[1]);
    if (plan.factored) {
      plan.columns = first_.add(over_rows, plan.local[0] * plan.local[2]);
      plan.total = totals_.add(over_rows, plan.local[0]);
    }
    plan.update_squares = update_squares_.add(all, 1);
    plans_.push_back(plan);
  }

  void step_all(Stream& stream) override {
    Stack& temporaries = whole_->temporaries();
    const StackScope scope(temporaries);
    for (RankSums* const sums : {&first_, &totals_, &update_squares_})
      sums->allocate(ops_, temporaries, stream);
    for (const Plan& plan : plans_)
      if (has_rows(plan.i)) add_first(plan, stream);
    first_.sum(*whole_, stream);
    for (const Plan& plan : plans_) average(plan, stream);
    totals_.sum(*whole_, stream);
    for (const Plan& plan : plans_)
      if (has_rows(plan.i)) ops_.adafactor_norm(update_of(plan), stream);
    update_squares_.sum(*whole_, stream);
    for (const Plan& plan : plans_)
      if (has_rows(plan.i)) update(plan, stream);
  }

  double g_factor() const { return control().scale * control().clip; }
  Tensor gradient(const Plan& plan) const { return parameter(plan.i).shard_grad->tensor.reshape(plan.local); }

  void add_first(const Plan& plan, Stream& stream) {
    const Shape rows{plan.local[0], plan.local[1]}, columns{plan.local[0], plan.local[2]};
    FactorSumsArgs args;
    args.g = gradient(plan);
    args.rows = first_.at(plan.rows).reshape(rows);
    if (plan.factored) args.columns = first_.at(plan.columns).reshape(columns);
    args.g_factor = g_factor();
    ops_.factor_sums(args, stream);
    ops_.norm_power(parameter(plan.i).shard, 2, first_.at(plan.squares), stream);
  }

  // The averages of the means, and the sums of the averages of this rank's rows.
  void average(const Plan& plan, Stream& stream) {
    const double weight =
        std::pow(static_cast<double>(control_of(plan.i).step), hyper<double>("beta2_decay"));
    const auto move = [&](size_t state, const Tensor& sums, int64_t count) {
      const Tensor mean = flat_state(plan.i, state);
      if (mean.count() == 0) return;
      ops_.scale(mean, 1 - weight, stream);
      ops_.add(sums, weight / static_cast<double>(count), mean, stream);
    };
    if (state(plan.i).empty()) return;
    move(0, first_.at(plan.rows), plan.whole[2]);
    if (!plan.factored) return;
    move(1, first_.at(plan.columns), plan.whole[1]);
    const Tensor rows = flat_state(plan.i, 0);
    if (rows.count() == 0) return;
    Stack& temporaries = whole_->temporaries();
    const StackScope scope(temporaries);
    const Tensor ones = temporaries.allocate(rows.dtype(), Shape{plan.local[1], 1});
    const Tensor total = temporaries.allocate(rows.dtype(), Shape{plan.local[0], 1});
    ops_.fill(ones, 1, stream);
    ops_.gemm({.a = rows.reshape({plan.local[0], plan.local[1]}), .b = ones, .c = total, .bias = {}}, stream);
    ops_.cast(flat(total), totals_.at(plan.total), stream);
  }

  AdafactorNormArgs update_of(const Plan& plan) const {
    AdafactorNormArgs args;
    args.g = gradient(plan);
    args.rows = flat_state(plan.i, 0).reshape({plan.local[0], plan.local[1]});
    if (plan.factored) {
      args.columns = flat_state(plan.i, 1).reshape({plan.local[0], plan.local[2]});
      args.totals = totals_.at(plan.total);
    }
    args.squares = update_squares_.at(plan.update_squares);
    args.g_factor = g_factor();
    args.least = parameter(plan.i).dtype == DType::f64 ? std::numeric_limits<double>::epsilon()
                                                       : std::numeric_limits<float>::epsilon();
    args.row_count = plan.whole[1];
    return args;
  }

  void update(const Plan& plan, Stream& stream) {
    AdafactorArgs args = arguments<AdafactorArgs>(plan.i);
    args.p_squares = first_.at(plan.squares);
    args.update = update_of(plan);
    args.eps = hyper<double>("eps");
    args.threshold = hyper<double>("clip_threshold");
    args.count = parameter(plan.i).shape.count();
    ops_.adafactor(args, stream);
  }

  const std::unique_ptr<WholeTensors> whole_;
  std::vector<Plan> plans_;
  RankSums first_;           // of squared gradients by row and by column, and of squared values
  RankSums totals_;          // of the averaged means of rows
  RankSums update_squares_;  // of the squared update
};

constexpr StateName kStates[] = {
    {"row_var", "average of the means of a row's squared gradients; 1 in the last dim"},
    {"col_var", "average of the means of a column's squared gradients; 1 in the last dim but one"},
    {"variance", "of 1-d parameters: average of the squared gradient"},
};

constexpr Hyperparameter kHyperparameters[] = {
    {"beta2_decay", -0.8, "[-1, 0]", "step t has weight t^beta2_decay in the averages"},
    {"eps", 1e-3, "(0, 1)", "least root mean square of a parameter, by which its rate is multiplied"},
    {"clip_threshold", 1.0, "[1, inf)", "an update with a greater root mean square is scaled down to it"},
};

}  // namespace

extern const OptimizerKind kAdafactor = {
    .name = "adafactor",
    .title = "Adafactor",
    .doc =
        "Adafactor (Shazeer and Stern, 2018), as torch.optim.Adafactor: a second moment of rows and columns, "
        "and rates relative to the size of the parameter, at most 1 / sqrt(t) at step t.",
    .lr = 1e-2,
    .weight_decay = 0,
    .states = kStates,
    .hyperparameters = kHyperparameters,
    .make = make_kind<Adafactor>,
};

}  // namespace gangway

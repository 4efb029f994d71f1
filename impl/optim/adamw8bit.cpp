// Blocks of codes are cut from the rows of the whole tensor, so that a split over dim 0 changes no bits. A
// split over the last dim has to lie between two blocks.
#include "ops/codes.h"
#include "optim/optimizer.h"

namespace gangway {
namespace {

enum State : size_t { kAverage, kSquares, kAverageScale, kSquaresScale };

class AdamW8bit final : public Optimizer {
 public:
  AdamW8bit(const OptimizerKind& kind, std::vector<NamedParameter> parameters,
            const OptimizerOptions& options, Ops& ops)
      : Optimizer(kind, std::move(parameters), options, ops),
        beta1_(hyper<double>("beta1")),
        beta2_(hyper<double>("beta2")),
        eps_(hyper<double>("eps")) {
    for (size_t i = 0; i < this->parameters().size(); ++i)
      if (wants_states(i) && parameter(i).shape.rank() >= 2) check_cuts(i);
    for (size_t i = 0; i < this->parameters().size(); ++i)
      if (wants_states(i)) make_states_of(i);
  }

 private:
  void check_cuts(size_t i) const {
    const Parameter& p = parameter(i);
    for (const Placement& at : p.layout) {
      if (at.kind != Placement::Kind::shard || at.dim != p.shape.rank() - 1) continue;
      for (size_t b = 1; b + 1 < at.bounds.size(); ++b)
        if (at.bounds[b] % kCodeBlock != 0 && at.bounds[b] != at.bounds.back())
          fail(Code::invalid_argument, "adamw8bit: ", parameters()[i].name, " is ", p.shape.text(), ", and ",
               at.axis, " cuts its rows at ", at.bounds[b], ", inside of a block of ", kCodeBlock,
               " elements that share a scale; take a degree of ", at.axis, " that cuts at multiples of ",
               kCodeBlock, ", or another optimizer");
    }
  }

  void make_states_of(size_t i) {
    const Parameter& p = parameter(i);
    if (p.shape.rank() < 2) {
      add_state(i, kAverage, DType::f32);
      return add_state(i, kSquares, DType::f32);
    }
    for (const size_t state : {kAverage, kSquares})
      add_state(i, state, DType::u8, p.shard.shape(), {{}, {}, p.shape, p.layout, p.place});
    Slot scales{{}, {}, p.shape, p.layout, p.place};
    const int last = p.shape.rank() - 1;
    scales.shape[last] = code_blocks(scales.shape[last]);
    for (Placement& at : scales.layout)
      if (at.dim == last)
        for (int64_t& bound : at.bounds) bound = code_blocks(bound);
    Shape local = p.shard.shape();
    local[last] = code_blocks(local[last]);
    for (const size_t state : {kAverageScale, kSquaresScale}) add_state(i, state, DType::f32, local, scales);
  }

  template <typename Args>
  Args filled(size_t i) const {
    Args args = arguments<Args>(i);
    args.m = flat_state(i, kAverage);
    args.v = flat_state(i, kSquares);
    args.beta1 = beta1_;
    args.beta2 = beta2_;
    args.eps = eps_;
    return args;
  }

  void step_one(size_t i, Stream& stream) override {
    if (parameter(i).shape.rank() < 2) return ops_.adamw(filled<AdamWArgs>(i), stream);
    AdamW8bitArgs args = filled<AdamW8bitArgs>(i);
    args.m_scale = flat_state(i, kAverageScale);
    args.v_scale = flat_state(i, kSquaresScale);
    args.columns = parameter(i).shard.dim(-1);
    ops_.adamw8bit(args, stream);
  }

  const double beta1_, beta2_, eps_;
};

constexpr StateName kStates[] = {
    {"exp_avg", "moving average of the gradient: codes (u8), of 1-d parameters f32"},
    {"exp_avg_sq", "moving average of the squared gradient, likewise"},
    {"exp_avg_scale", "largest magnitude of each block of 64 elements of a row of exp_avg"},
    {"exp_avg_sq_scale", "of exp_avg_sq"},
};

constexpr Hyperparameter kHyperparameters[] = {
    {"beta1", 0.9, "[0, 1)", "decay of the average of the gradient"},
    {"beta2", 0.999, "[0, 1)", "decay of the average of the squared gradient"},
    {"eps", 1e-8, "(0, 1)", "added to the root of that average"},
};

}  // namespace

extern const OptimizerKind kAdamW8bit = {
    .name = "adamw8bit",
    .title = "AdamW8bit",
    .doc =
        "AdamW with averages of 8 bits (Dettmers and others, 2022). 64 elements of a row of the whole tensor "
        "share a scale, their largest magnitude; a code is one of 256 values, of the two next to the "
        "number at random by their distance, so that averages move by less than a code: 0, 1, and seven "
        "decades "
        "10^(d - 6) (0.1 + 0.9 (k + 1/2) / n), d from 0 to 6, k below n, which is 2^d with either sign for "
        "the "
        "gradient's average and 2^(d + 1) for that of its square. A tensor parallel cut inside of 64 "
        "elements "
        "is refused. Averages of 1-d parameters are f32.",
    .lr = 1e-3,
    .weight_decay = 0,
    .states = kStates,
    .hyperparameters = kHyperparameters,
    .make = make_kind<AdamW8bit>,
};

}  // namespace gangway

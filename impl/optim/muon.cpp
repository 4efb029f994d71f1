// The momentum and the update of a parameter are elementwise, and each rank computes them for its rows.
// Between them stands the orthogonalisation, which needs whole matrices. Matrices are gathered in rounds, one
// for each rank at a time, the greatest first, so that the ranks of a round have about equal work and a rank
// needs memory for one whole matrix.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "optim/newton_schulz.h"
#include "optim/optimizer.h"

namespace gangway {
namespace {

enum State : size_t { kMomentum, kAverage, kSquares };

class Muon final : public Optimizer {
 public:
  Muon(const OptimizerKind& kind, std::vector<NamedParameter> parameters, const OptimizerOptions& options,
       Ops& ops, std::unique_ptr<WholeTensors> whole)
      : Optimizer(kind, std::move(parameters), options, ops),
        whole_(std::move(whole)),
        momentum_(hyper<double>("momentum")),
        nesterov_(hyper<bool>("nesterov")),
        match_rms_(hyper<bool>("match_rms")),
        matrix_dtype_(hyper<DType>("matrix_dtype")) {
    check_rules();
    for (size_t i = 0; i < this->parameters().size(); ++i) {
      if (!wants_states(i)) continue;
      const DType dtype = hyper<DType>("moment_dtype");
      if (by_adamw(i)) {
        add_state(i, kAverage, dtype);
        add_state(i, kSquares, dtype);
      } else {
        if (parameter(i).dtype != DType::f64) check_moves("momentum", momentum_, dtype);
        add_state(i, kMomentum, dtype);
      }
    }
    plan_rounds();
  }

 private:
  bool by_adamw(size_t i) const {
    if (adamw_rule(i) != -1) return adamw_rule(i) == 1;
    return parameter(i).shape.rank() != 2 || parameter(i).rows_are_ids;
  }

  void check_rules() const {
    for (size_t i = 0; i < parameters().size(); ++i)
      if (!is_frozen(i) && !by_adamw(i) && parameter(i).shape.rank() != 2)
        fail(Code::invalid_argument, "muon: ", parameters()[i].name, " is ", parameter(i).shape.text(),
             ", not a matrix, but a rule has adamw = 0; leave it at -1");
  }

  // The dtype of whole matrices of parameters()[i].
  DType dtype_of(size_t i) const { return parameter(i).dtype == DType::f64 ? DType::f64 : matrix_dtype_; }

  void plan_rounds() {
    std::vector<size_t> matrices;
    for (size_t i = 0; i < parameters().size(); ++i)
      if (!is_frozen(i) && !by_adamw(i) && whole_->holds(parameter(i)) && parameter(i).shape.count() != 0)
        matrices.push_back(i);
    std::stable_sort(matrices.begin(), matrices.end(), [&](size_t a, size_t b) {
      if (dtype_of(a) != dtype_of(b)) return dtype_of(a) < dtype_of(b);
      return parameter(a).shape.count() > parameter(b).shape.count();
    });
    for (const size_t i : matrices) {
      const bool fits = !rounds_.empty() && rounds_.back().size() < static_cast<size_t>(whole_->ranks()) &&
                        dtype_of(rounds_.back()[0]) == dtype_of(i);
      if (!fits) rounds_.emplace_back();
      rounds_.back().push_back(i);
    }
  }

  void step_all(Stream& stream) override {
    for (size_t i = 0; i < parameters().size(); ++i)
      if (!is_frozen(i) && by_adamw(i) && has_rows(i)) step_one(i, stream);
    for (const std::vector<size_t>& round : rounds_) step_round(round, stream);
  }

  void step_one(size_t i, Stream& stream) override {
    AdamWArgs args = arguments<AdamWArgs>(i);
    args.m = flat_state(i, 0);
    args.v = flat_state(i, 1);
    args.lr_scale *= hyper<double>("adamw_lr_scale");
    args.beta1 = hyper<double>("beta1");
    args.beta2 = hyper<double>("beta2");
    args.eps = hyper<double>("adamw_eps");
    ops_.adamw(args, stream);
  }

  void step_round(const std::vector<size_t>& round, Stream& stream) {
    Stack& temporaries = whole_->temporaries();
    const StackScope scope(temporaries);
    std::vector<const Parameter*> matrices;
    std::vector<Tensor> pieces;
    for (const size_t i : round) {
      matrices.push_back(&parameter(i));
      pieces.push_back(temporaries.allocate(dtype_of(i), parameter(i).local_shape()));
      if (has_rows(i)) write_direction(i, flat(pieces.back()), stream);
    }
    Tensor own;
    const auto rank = static_cast<size_t>(whole_->rank());
    if (rank < round.size()) own = temporaries.allocate(dtype_of(round[rank]), matrices[rank]->shape);
    whole_->gather(matrices, pieces, own, stream);
    if (own) orthogonalize(ops_, own, hyper<int64_t>("ns_steps"), hyper<double>("eps"), temporaries, stream);
    whole_->scatter(matrices, own, pieces, stream);
    for (size_t k = 0; k < round.size(); ++k)
      if (has_rows(round[k])) update(round[k], flat(pieces[k]), stream);
  }

  // m = momentum m + (1 - momentum) g;  out = m, or with Nesterov momentum m + (1 - momentum) g.
  void write_direction(size_t i, const Tensor& out, Stream& stream) {
    Stack& temporaries = whole_->temporaries();
    const StackScope scope(temporaries);
    const DType wide = parameter(i).dtype;
    const Tensor m = flat_state(i, 0), g = flat(parameter(i).shard_grad->tensor);
    const Tensor u = out.dtype() == wide ? out : temporaries.allocate(wide, out.shape());
    const double share = (1 - momentum_) * control().scale * control().clip;
    ops_.cast(m, u, stream);
    ops_.scale(u, momentum_, stream);
    ops_.add(g, share, u, stream);
    ops_.cast(u, m, stream);
    if (nesterov_) {
      ops_.scale(u, momentum_, stream);
      ops_.add(g, share, u, stream);
    }
    if (out.dtype() != wide) ops_.cast(u, out, stream);
  }

  // The step of plain gradient descent, with the orthogonal matrix in the place of the gradient.
  void update(size_t i, const Tensor& x, Stream& stream) {
    const auto rows = static_cast<double>(parameter(i).shape[0]);
    const auto columns = static_cast<double>(parameter(i).shape[1]);
    SgdArgs args = arguments<SgdArgs>(i);
    args.g = x;
    args.control.scale =
        match_rms_ ? 0.2 * std::sqrt(std::max(rows, columns)) : std::sqrt(std::max(1.0, rows / columns));
    args.control.clip = 1;
    ops_.sgd(args, stream);
  }

  const std::unique_ptr<WholeTensors> whole_;
  const double momentum_;
  const bool nesterov_, match_rms_;
  const DType matrix_dtype_;
  std::vector<std::vector<size_t>> rounds_;  // at most one matrix for each rank
};

constexpr StateName kStates[] = {
    {"momentum_buffer", "of matrices: moving average of the gradient"},
    {"exp_avg", "of the others: moving average of the gradient"},
    {"exp_avg_sq", "of the others: moving average of the squared gradient"},
};

constexpr Hyperparameter kHyperparameters[] = {
    {"momentum", 0.95, "[0, 1)", "decay of the average of a matrix's gradient"},
    {"ns_steps", 5, "[1, 100)", "iterations of the orthogonalisation"},
    {"eps", 1e-7, "(0, 1)", "least norm by which a matrix is divided before them"},
    {"adamw_lr_scale", 1.0, "[0, inf)", "factor of the rate of parameters that AdamW steps"},
    {"beta1", 0.9, "[0, 1)", "AdamW's decay of the average of the gradient"},
    {"beta2", 0.999, "[0, 1)", "AdamW's decay of the average of the squared gradient"},
    {"adamw_eps", 1e-8, "(0, 1)", "AdamW adds it to the root of that average"},
    {"nesterov", true, "", "looks ahead along the momentum"},
    {"match_rms", false, "",
     "a matrix's rate is lr * 0.2 sqrt(max(rows, columns)), to go with AdamW's; else lr * sqrt(max(1, rows / "
     "columns))"},
    {"matrix_dtype", DType::f32, "f32 or bf16",
     "in which matrices are gathered and orthogonalised: f32, or bf16 as PyTorch does; those of f64 "
     "parameters "
     "are f64"},
    {"moment_dtype", DType::f32, "f32 or bf16",
     "of the averages: f32 or bf16; those of f64 parameters are f64"},
};

}  // namespace

extern const OptimizerKind kMuon = {
    .name = "muon",
    .title = "Muon",
    .doc =
        "Muon (Jordan and others, 2024), as torch.optim.Muon: the step of a matrix is its momentum, "
        "orthogonalised. AdamW steps all other parameters, and embeddings and heads, unless a rule says "
        "otherwise (its adamw).",
    .lr = 1e-3,
    .weight_decay = 0.1,
    .mixes_adamw = true,
    .states = kStates,
    .hyperparameters = kHyperparameters,
    .make = make_kind<Muon>,
};

}  // namespace gangway

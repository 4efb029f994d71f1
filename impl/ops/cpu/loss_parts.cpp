#include "ops/cpu/operations.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/cpu/head_loss.h"
#include "ops/cpu/kernels/head_loss_kernels.h"

// C: tokens. V: ids of a part. W: parts.

namespace gangway::cpu {
namespace {

constexpr size_t kGrain = 4;  // the fewest rows that are worth a thread
constexpr double kInfinity = std::numeric_limits<double>::infinity();

const HeadLossKernels& kernels(Isa isa) {
  return choose(isa, portable::head_loss_kernels, avx2::head_loss_kernels, avx512::head_loss_kernels);
}

// Calls body(f32 or f64 row, c) for every row of the logits.
template <typename Body>
void for_each_row(Context& context, const Tensor& logits_CV, const Body& body) {
  const int64_t width = logits_CV.dim(1);
  context.pool.run(static_cast<size_t>(logits_CV.dim(0)), kGrain, [&](int, size_t first, size_t last) {
    for (size_t c = first; c < last; ++c) {
      const int64_t at = static_cast<int64_t>(c) * width;
      if (logits_CV.dtype() == DType::f64)
        body(logits_CV.data<double>() + at, c);
      else
        body(logits_CV.data<float>() + at, c);
    }
  });
}

// The statistics of W parts, [W, 3, C].
class Statistics {
 public:
  explicit Statistics(const Tensor& t) : all_(t.data<double>()), parts_(t.dim(0)), tokens_(t.dim(2)) {}

  double most(int64_t part, size_t c) const { return at(part, 0, c); }
  double most(size_t c) const {
    double most = -kInfinity;
    for (int64_t w = 0; w < parts_; ++w) most = std::max(most, this->most(w, c));
    return most;
  }
  double sum(size_t c, double most) const {
    double total = 0;
    for (int64_t w = 0; w < parts_; ++w) total += at(w, 1, c) * std::exp(this->most(w, c) - most);
    return total;
  }
  double label_logit(size_t c) const {
    double logit = -kInfinity;
    for (int64_t w = 0; w < parts_; ++w) logit = std::max(logit, at(w, 2, c));
    return logit;
  }

 private:
  double at(int64_t part, int64_t row, size_t c) const {
    return all_[(part * 3 + row) * tokens_ + static_cast<int64_t>(c)];
  }
  const double* all_;
  int64_t parts_, tokens_;
};

bool is_id(int64_t label, int64_t ids) { return label >= 0 && label < ids; }

RowPart part_of(const HeadLossKernels& k, float* x, int64_t n, int64_t label, double cap, bool sum) {
  return k.part_f32(x, n, label, cap, sum);
}
RowPart part_of(const HeadLossKernels& k, double* x, int64_t n, int64_t label, double cap, bool sum) {
  return k.part_f64(x, n, label, cap, sum);
}
void write_gradient(const HeadLossKernels& k, float* x, int64_t n, const PartGradient& gradient) {
  k.gradient_f32(x, n, gradient);
}
void write_gradient(const HeadLossKernels& k, double* x, int64_t n, const PartGradient& gradient) {
  k.gradient_f64(x, n, gradient);
}

double weight_of(const LossJoinArgs& args, size_t c) {
  return args.terms.weights ? real_at(args.terms.weights, static_cast<int64_t>(c)) : 1;
}

// Replaces what loss_part left in one row by the row's gradient.
template <typename S>
void gradient_of(const HeadLossKernels& k, const LossJoinArgs& args, const Statistics& statistics, size_t c,
                 S* row_V) {
  const int64_t width = args.logits.dim(1), label = args.labels.data<int64_t>()[c];
  if (label == args.ignore || !is_id(label, args.ids)) {
    std::fill_n(row_V, width, label == args.ignore ? S{0} : std::numeric_limits<S>::quiet_NaN());
    return;
  }
  const double most = statistics.most(c), part_most = statistics.most(args.part, c);
  const double sum = statistics.sum(c, most), s = args.terms.label_smoothing;
  const double slope = 1 + 2 * args.terms.z_loss * (std::log(sum) + most);
  const double factor = std::exp(part_most - most) / sum * slope, scale = args.scale * weight_of(args, c);
  const double spread = s / static_cast<double>(args.ids);  // what smoothing takes from each logit
  const int64_t local = label - args.first_id;
  const bool here = local >= 0 && local < width;
  const bool capped = args.terms.cap > 0;
  // The label's element, computed before any rounding.
  double own = 0;
  if (here) {
    const double x = static_cast<double>(row_V[local]), ratio = capped ? x / args.terms.cap : 0;
    own = ((capped ? std::exp(x - part_most) : x) * factor - (1 - s) - spread) * scale * (1 - ratio * ratio);
  }
  write_gradient(k, row_V, width, {part_most, factor * scale, spread * scale, args.terms.cap});
  if (here) row_V[local] = static_cast<S>(own);
}

// The loss and the log-probability of one row whose label is an id.
RowLoss loss_of(const LossJoinArgs& args, const Statistics& statistics, size_t c) {
  const double most = statistics.most(c), s = args.terms.label_smoothing;
  const double lse = std::log(statistics.sum(c, most)) + most;
  const double negative_log = lse - statistics.label_logit(c);
  const double mean = s == 0 ? 0 : args.logit_sums.data<double>()[c] / static_cast<double>(args.ids);
  const double smooth = s == 0 ? 0 : s * (lse - mean);
  return {weight_of(args, c) * ((1 - s) * negative_log + smooth + args.terms.z_loss * lse * lse),
          -negative_log};
}

}  // namespace

void loss_part(Context& context, const LossPartArgs& args) {
  const HeadLossKernels& k = kernels(context.isa);
  const int64_t tokens = args.logits.dim(0), width = args.logits.dim(1);
  const int64_t* const labels_C = args.labels.data<int64_t>();
  double* const statistics_3C = args.statistics.data<double>();
  for_each_row(context, args.logits, [&](auto* row_V, size_t c) {
    // The first comparison comes before the subtraction, which could overflow for a label far outside.
    const bool here = labels_C[c] >= args.first_id && labels_C[c] - args.first_id < width;
    const RowPart part = part_of(k, row_V, width, here ? labels_C[c] - args.first_id : -1, args.cap,
                                 static_cast<bool>(args.logit_sums));
    statistics_3C[c] = part.most;
    statistics_3C[static_cast<size_t>(tokens) + c] = part.sum;
    statistics_3C[2 * static_cast<size_t>(tokens) + c] = part.at_label;
    if (args.logit_sums) args.logit_sums.data<double>()[c] = part.logit_sum;
  });
}

void loss_join(Context& context, const LossJoinArgs& args) {
  const HeadLossKernels& k = kernels(context.isa);
  const Statistics statistics(args.statistics);
  for_each_row(context, args.logits,
               [&](auto* row_V, size_t c) { gradient_of(k, args, statistics, c, row_V); });
  const int64_t* const labels_C = args.labels.data<int64_t>();
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  for (size_t c = 0; c < static_cast<size_t>(args.logits.dim(0)); ++c) {
    const bool counts = labels_C[c] != args.ignore;
    RowLoss row{0, 0};
    if (counts) row = is_id(labels_C[c], args.ids) ? loss_of(args, statistics, c) : RowLoss{kNan, kNan};
    if (args.terms.log_probs) set_real(args.terms.log_probs, static_cast<int64_t>(c), row.log_prob);
    if (!counts) continue;
    if (args.weight) *args.weight.data<double>() += weight_of(args, c);
    if (args.loss) *args.loss.data<double>() += row.loss;
  }
}

}  // namespace gangway::cpu

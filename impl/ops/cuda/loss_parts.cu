#include "ops/cuda/families.h"
#include "ops/cuda/head_loss.h"
#include "ops/cuda/loss_terms.h"
#include "ops/cuda/numbers.h"
#include "ops/cuda/reduce.h"

// C tokens, V ids of a part, W parts. Each block has one row of logits, each thread n neighbouring logits of
// each tile. As in head_loss.cu, a loss with a cap, label smoothing or a z-loss has kernels of its own. With
// a cap the logits stay between the two operations in place of their exponentials, because the derivative of
// the cap needs them, and an f32 exponential may have underflowed.

namespace gangway::cuda {
namespace {

constexpr int kThreads = 512;

template <typename S>
struct Part {
  S* logits_CV;
  const int64_t* labels_C;
  double* statistics_3C;
  int64_t rows, width, first_id;
  S cap;
  double* logit_sums_C;  // null: not wanted
};

template <typename S, int n, bool with_terms>
__global__ void loss_part_kernel(Part<S> p) {
  double* const sum_scratch = block_memory<double>();
  S* const scratch = block_memory<S>();
  const int64_t first = static_cast<int64_t>(threadIdx.x) * n, tile = static_cast<int64_t>(blockDim.x) * n;
  const int64_t row = blockIdx.x, label = p.labels_C[row];
  S* const logits_V = p.logits_CV + row * p.width;
  double sum = 0;
  S most = -static_cast<S>(INFINITY);
  for (int64_t j = first; j < p.width; j += tile) {
    Pack<S, n> logits = load<n>(logits_V + j);
    for (int e = 0; e < n; ++e) {
      if (with_terms) logits.at[e] = capped_logit(logits.at[e], p.cap);
      if (with_terms) sum += static_cast<double>(logits.at[e]);
      most = Largest()(most, logits.at[e]);
    }
    if (with_terms && p.cap > 0) store<n>(logits_V + j, logits);
  }
  most = block_fold(most, -static_cast<S>(INFINITY), scratch, Largest());
  if (threadIdx.x == 0) {
    // Compares before it subtracts, because the difference would overflow for a label far outside.
    const bool here = label >= p.first_id && label - p.first_id < p.width;
    p.statistics_3C[row] = most;
    p.statistics_3C[2 * p.rows + row] = here ? logits_V[label - p.first_id] : -static_cast<double>(INFINITY);
  }
  __syncthreads();  // the label's logit has been read, and the scratch is free
  S total = 0;
  for (int64_t j = first; j < p.width; j += tile) {
    Pack<S, n> weights = load<n>(logits_V + j);
    for (int e = 0; e < n; ++e) {
      weights.at[e] = exp(weights.at[e] - most);
      total += weights.at[e];
    }
    if (!with_terms || !(p.cap > 0)) store<n>(logits_V + j, weights);
  }
  total = block_sum(total, scratch);
  if (threadIdx.x == 0) p.statistics_3C[p.rows + row] = total;
  if (!with_terms || p.logit_sums_C == nullptr) return;
  __syncthreads();  // the scratch is free
  sum = block_sum(sum, sum_scratch);
  if (threadIdx.x == 0) p.logit_sums_C[row] = sum;
}

template <typename S>
struct Join {
  S* logits_CV;
  const int64_t* labels_C;
  const double *statistics_W3C, *logit_sums_C;
  double* losses_C;
  int64_t rows, width, parts, part, first_id, ids, ignore;
  double scale;
  RowTerms<S> terms;

  __device__ double at(int64_t of, int statistic, int64_t row) const {
    return statistics_W3C[(of * 3 + statistic) * rows + row];
  }
};

// The statistics of a row over all parts. Exponentials of this part times `factor` are probabilities.
struct Joined {
  double logit, log_total, factor;
};
template <typename S>
__device__ Joined join(const Join<S>& p, int64_t row) {
  double most = -static_cast<double>(INFINITY), logit = most, total = 0;
  for (int64_t w = 0; w < p.parts; ++w) {
    most = Largest()(most, p.at(w, 0, row));
    logit = Largest()(logit, p.at(w, 2, row));
  }
  for (int64_t w = 0; w < p.parts; ++w) total += p.at(w, 1, row) * exp(p.at(w, 0, row) - most);
  return {logit, log(total) + most, exp(p.at(p.part, 0, row) - most) / total};
}

template <typename S, int n, bool with_terms>
__global__ void loss_join_kernel(Join<S> p) {
  // The factor, the gradient of the label's logit, and the logarithm of the sum of all exponentials.
  double* const shared = block_memory<double>();
  const int64_t row = blockIdx.x, label = p.labels_C[row];
  const bool ignored = label == p.ignore, outside = label < 0 || label >= p.ids;
  const bool here = !outside && label >= p.first_id && label < p.first_id + p.width;
  S* const logits_V = p.logits_CV + row * p.width;
  if (threadIdx.x == 0) {
    Joined joined = {NAN, NAN, NAN};
    if (!outside) joined = join(p, row);
    double mean = 0;
    if (with_terms && p.logit_sums_C != nullptr) mean = p.logit_sums_C[row] / static_cast<double>(p.ids);
    put_loss<with_terms>(p.terms, row, ignored, joined.logit, joined.log_total, mean, p.losses_C);
    const double factor = joined.factor, scale = p.scale * static_cast<double>(p.terms.weight(row));
    shared[0] = ignored ? 0.0 : with_terms ? factor : factor * scale;
    // The probability minus 1, computed in f64 before any rounding.
    if constexpr (!with_terms)
      shared[1] =
          ignored || !here ? 0.0 : (static_cast<double>(logits_V[label - p.first_id]) * factor - 1) * scale;
    shared[2] = joined.log_total;
  }
  __syncthreads();
  const double factor = shared[0];
  const int64_t label_at = here ? label - p.first_id : -1;
  const S scale = static_cast<S>(p.scale) * p.terms.weight(row), log_total = static_cast<S>(shared[2]);
  const S part_most = static_cast<S>(p.at(p.part, 0, row));
  for (int64_t j = static_cast<int64_t>(threadIdx.x) * n; j < p.width;
       j += static_cast<int64_t>(blockDim.x) * n) {
    Pack<S, n> pack{};
    if (!ignored) {
      pack = load<n>(logits_V + j);
      for (int e = 0; e < n; ++e) {
        const bool is_label = j + e == label_at;
        if constexpr (with_terms) {
          const S weight = p.terms.cap > 0 ? exp(pack.at[e] - part_most) : pack.at[e];
          const S probability = static_cast<S>(static_cast<double>(weight) * factor);
          pack.at[e] = scale * p.terms.gradient(pack.at[e], probability, log_total, is_label, p.ids);
        } else {
          pack.at[e] = static_cast<S>(is_label ? shared[1] : static_cast<double>(pack.at[e]) * factor);
        }
      }
    }
    store<n>(logits_V + j, pack);
  }
}

// Calls body(S{}, n) with the type of the logits, f32 or f64, and the number of elements of a pack.
template <typename Body>
void with_logits(const Tensor& logits_CV, Body&& body) {
  const auto packed = [&](auto type) {
    with_packs<decltype(type)>(fits_packs({address(logits_CV), logits_CV.dim(1) * sizeof(type)}),
                               [&](auto n) { body(type, n); });
  };
  if (logits_CV.dtype() == DType::f64) return packed(double{});
  packed(float{});
}

}  // namespace

void loss_part(const LossPartArgs& args, Stream& stream) {
  const int64_t rows = args.logits.dim(0), width = args.logits.dim(1);
  if (rows == 0) return;
  with_logits(args.logits, [&](auto type, auto n) {
    using S = decltype(type);
    const Part<S> p = {args.logits.data<S>(),
                       args.labels.data<int64_t>(),
                       args.statistics.data<double>(),
                       rows,
                       width,
                       args.first_id,
                       static_cast<S>(args.cap),
                       args.logit_sums ? args.logit_sums.data<double>() : nullptr};
    const auto kernel =
        args.cap > 0 || args.logit_sums ? loss_part_kernel<S, n(), true> : loss_part_kernel<S, n(), false>;
    launch("loss_part", kernel, {blocks(rows), kThreads, kWarpSize * sizeof(double)}, native(stream), p);
  });
}

void loss_join(const LossJoinArgs& args, Stream& stream) {
  const int64_t rows = args.logits.dim(0), width = args.logits.dim(1);
  if (rows == 0) return;
  double* const losses_C = losses_of(rows, stream);
  with_logits(args.logits, [&](auto type, auto n) {
    using S = decltype(type);
    const Join<S> p = {args.logits.data<S>(),
                       args.labels.data<int64_t>(),
                       args.statistics.data<double>(),
                       args.logit_sums ? args.logit_sums.data<double>() : nullptr,
                       losses_C,
                       rows,
                       width,
                       args.statistics.dim(0),
                       args.part,
                       args.first_id,
                       args.ids,
                       args.ignore,
                       args.scale,
                       row_terms<S>(args.terms, 0)};
    const auto kernel =
        has_terms(args.terms) ? loss_join_kernel<S, n(), true> : loss_join_kernel<S, n(), false>;
    launch("loss_join", kernel, {blocks(rows), kThreads, 3 * sizeof(double)}, native(stream), p);
    add_losses("loss_join", losses_C, p.labels_C, p.terms, rows, args.ignore, args.loss, args.weight, stream);
  });
}

}  // namespace gangway::cuda

#include "ops/cuda/families.h"
#include "ops/cuda/head_loss.h"
#include "ops/cuda/numbers.h"
#include "ops/cuda/reduce.h"

// C tokens, V ids of a part, W parts. Each block has one row of logits, each thread n neighbouring logits of
// each tile.

namespace gangway::cuda {
namespace {

constexpr int kThreads = 512;

template <typename S>
struct Part {
  S* logits_CV;
  const int64_t* labels_C;
  double* statistics_3C;
  int64_t rows, width, first_id;
};

template <typename S, int n>
__global__ void loss_part_kernel(Part<S> p) {
  S* const scratch = block_memory<S>();
  const int64_t first = static_cast<int64_t>(threadIdx.x) * n, tile = static_cast<int64_t>(blockDim.x) * n;
  const int64_t row = blockIdx.x, label = p.labels_C[row];
  S* const logits_V = p.logits_CV + row * p.width;
  S most = -static_cast<S>(INFINITY);
  for (int64_t j = first; j < p.width; j += tile) {
    const Pack<S, n> logits = load<n>(logits_V + j);
    for (int e = 0; e < n; ++e) most = Largest()(most, logits.at[e]);
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
    store<n>(logits_V + j, weights);
  }
  total = block_sum(total, scratch);
  if (threadIdx.x == 0) p.statistics_3C[p.rows + row] = total;
}

template <typename S>
struct Join {
  S* logits_CV;
  const int64_t* labels_C;
  const double* statistics_W3C;
  double* losses_C;
  int64_t rows, width, parts, part, first_id, ids, ignore;
  double scale;

  __device__ double at(int64_t of, int statistic, int64_t row) const {
    return statistics_W3C[(of * 3 + statistic) * rows + row];
  }
};

// Returns the loss of a row. Exponentials of this part times `factor` are probabilities.
template <typename S>
__device__ double join(const Join<S>& p, int64_t row, double& factor) {
  double most = -static_cast<double>(INFINITY), logit = most, total = 0;
  for (int64_t w = 0; w < p.parts; ++w) {
    most = Largest()(most, p.at(w, 0, row));
    logit = Largest()(logit, p.at(w, 2, row));
  }
  for (int64_t w = 0; w < p.parts; ++w) total += p.at(w, 1, row) * exp(p.at(w, 0, row) - most);
  factor = exp(p.at(p.part, 0, row) - most) / total;
  return log(total) + most - logit;
}

template <typename S, int n>
__global__ void loss_join_kernel(Join<S> p) {
  double* const shared = block_memory<double>();  // the factor, and the gradient of the label's logit
  const int64_t row = blockIdx.x, label = p.labels_C[row];
  const bool ignored = label == p.ignore, outside = label < 0 || label >= p.ids;
  const bool here = !outside && label >= p.first_id && label < p.first_id + p.width;
  S* const logits_V = p.logits_CV + row * p.width;
  if (threadIdx.x == 0) {
    double factor = NAN, loss = NAN;
    if (!outside) loss = join(p, row, factor);
    p.losses_C[row] = ignored ? 0.0 : loss;
    shared[0] = ignored ? 0.0 : factor * p.scale;
    // The probability minus 1, computed in f64 before any rounding.
    shared[1] =
        ignored || !here ? 0.0 : (static_cast<double>(logits_V[label - p.first_id]) * factor - 1) * p.scale;
  }
  __syncthreads();
  const double factor = shared[0], at_label = shared[1];
  const int64_t label_at = here ? label - p.first_id : -1;
  for (int64_t j = static_cast<int64_t>(threadIdx.x) * n; j < p.width;
       j += static_cast<int64_t>(blockDim.x) * n) {
    Pack<S, n> pack{};
    if (!ignored) {
      pack = load<n>(logits_V + j);
      for (int e = 0; e < n; ++e)
        pack.at[e] = static_cast<S>(j + e == label_at ? at_label : static_cast<double>(pack.at[e]) * factor);
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
    const Part<S> p = {
        args.logits.data<S>(), args.labels.data<int64_t>(), args.statistics.data<double>(), rows, width,
        args.first_id};
    launch("loss_part", loss_part_kernel<S, n()>, {blocks(rows), kThreads, kWarpSize * sizeof(S)},
           native(stream), p);
  });
}

void loss_join(const LossJoinArgs& args, Stream& stream) {
  const int64_t rows = args.logits.dim(0), width = args.logits.dim(1);
  if (rows == 0) return;
  auto* const losses_C = static_cast<double*>(workspace(stream, static_cast<size_t>(rows) * sizeof(double)));
  with_logits(args.logits, [&](auto type, auto n) {
    using S = decltype(type);
    const Join<S> p = {args.logits.data<S>(),
                       args.labels.data<int64_t>(),
                       args.statistics.data<double>(),
                       losses_C,
                       rows,
                       width,
                       args.statistics.dim(0),
                       args.part,
                       args.first_id,
                       args.ids,
                       args.ignore,
                       args.scale};
    launch("loss_join", loss_join_kernel<S, n()>, {blocks(rows), kThreads, 2 * sizeof(double)},
           native(stream), p);
  });
  add_losses(losses_C, args.labels.data<int64_t>(), rows, args.ignore, args.loss, args.weight, stream);
}

}  // namespace gangway::cuda

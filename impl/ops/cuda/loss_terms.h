// The terms of a loss (ops/ops.h, LossTerms) inside kernels, for the rows of one launch.
//
// Thread rule: inside kernels; row_terms and has_terms from any thread.
#pragma once

#include "ops/cuda/numbers.h"
#include "ops/cuda/reduce.h"
#include "ops/ops.h"

namespace gangway::cuda {

template <typename S>
__device__ S capped_logit(S logit, S cap) {
  return cap > 0 ? cap * tanh(logit / cap) : logit;
}

// S is the type of the logits.
template <typename S>
struct RowTerms {
  const S* weights_C;  // null: each weight is 1
  S* log_probs_C;      // null: not wanted
  S cap;               // 0: none
  S label_smoothing, z_loss;

  __device__ S weight(int64_t row) const { return weights_C == nullptr ? S(1) : weights_C[row]; }
  __device__ S capped(S logit) const { return capped_logit(logit, cap); }
  // Returns the derivative of a row's loss by one logit before the cap. `logit` is the capped one, and is
  // read only if there is a cap.
  __device__ S gradient(S logit, S probability, S log_total, bool is_label, int64_t ids) const {
    S slope = 1;
    if (cap > 0) {
      const S part = logit / cap;
      slope = S(1) - part * part;
    }
    const S wanted = (is_label ? S(1) - label_smoothing : S(0)) + label_smoothing / static_cast<S>(ids);
    return slope * (probability * (S(1) + S(2) * z_loss * log_total) - wanted);
  }
};

// Writes a row's weighted loss, and its label's log probability. One thread of the row calls it. `logit` is
// the label's, NaN where the label is no id; `mean` is the mean of all logits.
template <bool with_terms, typename S>
__device__ void put_loss(const RowTerms<S>& terms, int64_t row, bool ignored, double logit, double log_total,
                         double mean, double* losses_C) {
  double loss = logit == logit ? log_total - logit : logit;
  if (terms.log_probs_C != nullptr) terms.log_probs_C[row] = static_cast<S>(ignored ? 0.0 : -loss);
  if constexpr (with_terms) {
    const double smoothing = terms.label_smoothing;
    if (smoothing != 0) loss = (1 - smoothing) * loss + smoothing * (log_total - mean);
    loss += terms.z_loss * log_total * log_total;
  }
  losses_C[row] = ignored ? 0.0 : loss * static_cast<double>(terms.weight(row));
}

template <typename S>
RowTerms<S> row_terms(const LossTerms& terms, int64_t first_token) {
  return {terms.weights ? terms.weights.data<S>() + first_token : nullptr,
          terms.log_probs ? terms.log_probs.data<S>() + first_token : nullptr, static_cast<S>(terms.cap),
          static_cast<S>(terms.label_smoothing), static_cast<S>(terms.z_loss)};
}

constexpr int kLossThreads = 512;

// Adds the sum of losses_C to `loss`, and that of the weights of the labels that count to `weight`. Runs as
// one block, so that the order of the sums depends on the shape only.
template <typename S>
__global__ void add_losses_kernel(const double* losses_C, const int64_t* labels_C, RowTerms<S> terms,
                                  int64_t rows, int64_t ignore, double* loss, double* weight) {
  double* const scratch = block_memory<double>();
  double sum = 0, counted = 0;
  for (int64_t r = threadIdx.x; r < rows; r += blockDim.x) {
    sum += losses_C[r];
    counted += labels_C[r] != ignore ? static_cast<double>(terms.weight(r)) : 0.0;
  }
  sum = block_sum(sum, scratch);
  __syncthreads();
  counted = block_sum(counted, scratch);
  if (threadIdx.x != 0) return;
  if (loss != nullptr) *loss += sum;
  if (weight != nullptr) *weight += counted;
}

// `loss` and `weight` are f64 [1], or absent if not wanted.
template <typename S>
void add_losses(const char* name, const double* losses_C, const int64_t* labels_C, const RowTerms<S>& terms,
                int64_t rows, int64_t ignore, const Tensor& loss, const Tensor& weight, Stream& stream) {
  if (!loss && !weight) return;
  launch(name, add_losses_kernel<S>, {dim3(1), kLossThreads, kWarpSize * sizeof(double)}, native(stream),
         losses_C, labels_C, terms, rows, ignore, loss ? loss.data<double>() : nullptr,
         weight ? weight.data<double>() : nullptr);
}

// Returns whether a loss has a term that the loops over ids compute. Weights and log probabilities are none
// of them.
inline bool has_terms(const LossTerms& terms) {
  return terms.cap > 0 || terms.label_smoothing != 0 || terms.z_loss != 0;
}

}  // namespace gangway::cuda

// Chooses which of cuBLASLt's algorithms computes a product. cuBLASLt gives up to eight answers, and expects
// its first one to be the fastest. The first product of a shape measures them, and the fastest one is kept.
//
// The numbers do not depend on the times, so runs and ranks may choose differently. An answer is measured
// only if it splits sums as the first answer does. It is taken only if it gives the same bits as the first
// answer in 1 MiB of this product's result (in 16 rows, if rows have gaps between them), of which at least
// one byte is not zero.
//
// What it costs, once for each combination of shape, dtypes, strides and alignments: four products for each
// answer, one wait of the host for the stream for each answer, and at most 1 MiB of pinned memory (2 rows, if
// those are larger). A product that adds is measured in the place of its result, which waits on the host
// meanwhile and comes back: two copies, and plain memory of the host of the result's size. So nothing takes
// memory of the device, which a memory plan would have to count. If the host lacks that memory, the first
// answer is kept, because an allocation that fails at each use would cost more than a slow algorithm.
//
// Nothing is measured while a caller captures a stream of the device. The product then takes the first
// answer, and the next use of the shape tries again. GANGWAY_CUDA_TUNING=0 always takes the first answer.
//
// Thread rule: an Ops' (ops/ops.h).
#pragma once

#include <cublasLt.h>

#include <optional>
#include <span>

#include "device/cuda/cuda_device.h"

namespace gangway::cuda {

constexpr int kMostAnswers = 8;

void check(cublasStatus_t status, const char* what);

// A product as cuBLASLt takes it. cuBLASLt stores matrices by columns, so that its a is Gangway's b.
struct LtProduct {
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t how = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
  const void *a_data = nullptr, *b_data = nullptr;
  void* c_data = nullptr;
  // The result is stored as Gangway does it: `rows` of `row_bytes` bytes, which lie `stride_bytes` apart.
  size_t rows = 0, row_bytes = 0, stride_bytes = 0;
  bool add = false;  // c += a b
  bool f64 = false;  // factors are f64
};

// Starts the product.
cublasStatus_t multiply(const LtProduct& product, const cublasLtMatmulAlgo_t& algorithm, Stream& stream);

// Measures the answers, of which there is at least one, and returns the one to keep. The result of the
// product is undefined afterwards, unless it adds, and after a failure. None: nothing can be measured now.
std::optional<cublasLtMatmulAlgo_t> fastest(const LtProduct& product,
                                            std::span<const cublasLtMatmulAlgo_t> answers, Stream& stream);

}  // namespace gangway::cuda

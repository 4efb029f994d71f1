// Products by cuBLASLt.
// Thread rule: an Ops' (ops/ops.h).
#pragma once

#include <cublasLt.h>

#include <map>
#include <vector>

#include "device/cuda/cuda_device.h"
#include "ops/ops.h"

namespace gangway::cuda {

class Products {
 public:
  explicit Products(int device);
  ~Products();
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  void gemm(const GemmArgs& args, Stream& stream);

 private:
  // What an algorithm is chosen by: types, sizes, strides, alignments.
  using Key = std::vector<int64_t>;

  cublasLtHandle_t handle_ = nullptr;
  std::map<Key, cublasLtMatmulAlgo_t> algorithms_;
};

// The one place that starts rows of a product without one: c = [c +] bias, or 0.
void start_rows(const Tensor& c, const Tensor& bias, bool accumulate, Stream& stream);

}  // namespace gangway::cuda

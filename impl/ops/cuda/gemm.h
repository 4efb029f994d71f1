// Products by cuBLASLt.
//
// Thread rule: an Ops' (ops/ops.h).
#pragma once

#include <cublasLt.h>

#include <map>
#include <vector>

#include "device/cuda/cuda_device.h"
#include "ops/fp8.h"

namespace gangway::cuda {

class Products {
 public:
  explicit Products(int device);
  ~Products();
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  void gemm(const GemmArgs& args, Stream& stream);
  // NOT_SUPPORTED: a result in f64, a depth that is no multiple of 16, scales of the rows of one operand only, or
  // cuBLASLt has no such product on this GPU.
  void fp8_gemm(const Fp8GemmArgs& args, Stream& stream);
  static void check_fp8(int device, bool rows);  // Fp8Ops::check_fp8

 private:
  // The facts that decide about an algorithm: types, sizes, strides, alignments.
  using Key = std::vector<int64_t>;

  cublasLtHandle_t handle_ = nullptr;
  std::map<Key, cublasLtMatmulAlgo_t> algorithms_;
};

// Sets each row of c to bias, to c + bias (accumulate), or to 0 if there is no bias. For products that cannot
// add the bias themselves, and for products of depth 0.
void start_rows(const Tensor& c, const Tensor& bias, bool accumulate, Stream& stream);

}  // namespace gangway::cuda

// Products by cuBLASLt.
//
// Thread rule: an Ops' (ops/ops.h).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ops/cuda/product_algorithms.h"
#include "ops/fp8.h"

namespace gangway::cuda {

class Products {
 public:
  explicit Products(int device);
  ~Products();
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  void gemm(const GemmArgs& args, Stream& stream);
  // NOT_SUPPORTED: a result in f64, a depth that is no multiple of 16, scales of the rows of one operand
  // only, or cuBLASLt has no such product on this GPU.
  void fp8_gemm(const Fp8GemmArgs& args, Stream& stream);
  static void check_fp8(int device, bool rows);  // Fp8Ops::check_fp8

  std::string words() const;  // for gw-info, on how algorithms are chosen

 private:
  // The facts that decide about an algorithm: types, sizes, strides, alignments.
  using Key = std::vector<int64_t>;
  using Answers = std::vector<cublasLtMatmulAlgo_t>;
  struct Operands;

  Answers ask(const LtProduct& product, const Operands& args) const;
  void run(Key key, const LtProduct& product, const Operands& operands, Stream& stream);

  const int most_answers_;
  cublasLtHandle_t handle_ = nullptr;
  std::map<Key, Answers> algorithms_;  // one answer: it is chosen
};

// Sets each row of c to bias, to c + bias (accumulate), or to 0 if there is no bias. For products that cannot
// add the bias themselves, and for products of depth 0.
void start_rows(const Tensor& c, const Tensor& bias, bool accumulate, Stream& stream);

}  // namespace gangway::cuda

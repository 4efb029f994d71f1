// The reference files of tests/data, read without the library: a Llama, its batches and optimizer, and what
// another framework computed for them in f64.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "nn/layers.h"
#include "support/tensor_file.h"

namespace gangway::test {

class Reference : public TensorFile {
 public:
  struct Optimizer {
    double lr, beta1, beta2, eps, weight_decay, max_grad_norm;
  };

  explicit Reference(const std::string& name);

  std::vector<int64_t> ids(const std::string& name) const {
    return {at(name).values.begin(), at(name).values.end()};
  }

  // Batches are [steps, batch, sequence].
  int64_t batch() const { return at("tokens").dims[1]; }
  int64_t sequence() const { return at("tokens").dims[2]; }
  // Rows [first, last) of one step.
  std::vector<int64_t> rows(const char* which, int64_t first, int64_t last, int64_t step = 0) const;
  // The number of labels of step 0 that count, which are those that are not -100.
  int64_t weight() const;

  DecoderOptions config;
  Optimizer optimizer;
};

// The errors of PyTorch in bf16 and f16 (tests/data/make_half.py), which limit ours: on a reference file, and over
// training.
struct HalfErrors {
  double loss = 0;                          // relative
  std::map<std::string, double> gradients;  // normwise
};
HalfErrors half_errors(DType dtype, const std::string& reference);
// The largest deviation of the loss over the steps of any of PyTorch's runs.
double half_training_error(DType dtype);
// Both libraries round equally often, but at different places: their errors have the same size and are independent.
constexpr double kBesidePyTorch = 2;

}  // namespace gangway::test

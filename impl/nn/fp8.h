// Linear layers in FP8: the three products of a layer take 8-bit codes (ops/fp8.h) of their operands.
// Everything else stays as it is: values and master values of the weight, its gradient, the bias, what a
// frame saves, reductions over ranks. Each product makes its codes anew from the values in the compute dtype,
// so that a recomputation has the same codes.
//
// Thread rule: that of a module.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "nn/module.h"

namespace gangway {

// What shares a scale, and where it comes from.
//   tensor   one scale for each operand, from its own values. The input and the weight are e4m3, the
//            gradient of the output e5m2. The scale is that of the values that this rank has, so that it
//            depends on the mesh and on the microbatch.
//   delayed  as tensor, from the largest magnitude of the last `history` steps. Each microbatch of the first
//            step, and an operand with an infinity, takes its own. All microbatches of a later step have the
//            same scale.
//   row      one scale for each row along the dim that is summed, for each of the three products anew. All
//            codes are e4m3. Where that dim is split over tp, the ranks agree on the scales.
enum class Fp8Scaling : int32_t { tensor = 0, delayed = 1, row = 2 };

struct Fp8Options {
  std::vector<std::string>
      patterns;  // of module paths (path_matches); empty: every linear layer but the head
  Fp8Scaling scaling = Fp8Scaling::tensor;
  int history = 16;  // steps, 1 to 4096; of delayed scales
};

// Gives the ranks that have parts of the same rows the scales of whole rows. Parallelism implements it.
class Fp8ScaleJoin {
 public:
  virtual ~Fp8ScaleJoin() = default;
  // Replaces each scale by the largest of all ranks.
  virtual void join(Context& ctx, const Tensor& scale) = 0;
};

// The products of one layer. All memory that they take is in the context's temporaries. Letters: T tokens, I
// inputs, O outputs.
class Fp8Products {
 public:
  explicit Fp8Products(const Fp8Options& options)
      : scaling_(options.scaling), entries_(options.history + 1) {}

  // Codes and their scales, [1] or one for each row.
  struct Operand {
    Tensor codes, scale;
    Operand rows(int64_t first, int64_t last) const;
  };
  Operand input(Context& ctx, const Tensor& x_TI);
  Operand weight(Context& ctx, const Tensor& w_OI);
  // y = x w^T for rows of x.
  void forward(Context& ctx, const Operand& x, const Operand& w, const Tensor& y_TO) const;
  // dx = dy w [+ dx]
  void input_gradient(Context& ctx, const Tensor& dy_TO, const Tensor& w_OI, const Tensor& dx_TI,
                      bool accumulate);
  // dw = dy^T x [+ dw]
  void weight_gradient(Context& ctx, const Tensor& dy_TO, const Tensor& x_TI, const Tensor& dw_OI,
                       bool accumulate);

  // Which dim of the weight is split over ranks, and how those agree.
  enum class Dim : uint8_t { none, in, out };
  struct Split {
    Dim dim = Dim::none;
    std::shared_ptr<Fp8ScaleJoin> join;
  };
  void set_split(Split split) { split_ = std::move(split); }
  const Split& split() const { return split_; }

  // NOT_SUPPORTED: the device has no products in FP8, or none with these scales.
  void check_device(Ops& ops) const;
  // NOT_SUPPORTED: as check_device(), or the device has no products in this dtype. INVALID_ARGUMENT: a GPU
  // cannot take such sizes. `tokens` is -1 if no gradient of the weight will sum over them.
  void check_products(Ops& ops, const std::string& layer, DType dtype, int64_t in, int64_t out,
                      int64_t tokens) const;
  void add_options(CallSignature& signature) const;
  Values tables() const;

 private:
  enum Which : size_t { kInput, kWeight, kGradient };
  // The magnitudes of an operand by step, on the device, in a ring.
  struct History {
    Tensor most;  // absent before the first use
    int now = 0;
    int64_t step = -1;
  };
  Operand quantized(Context& ctx, Which which, const Tensor& x, bool transposed, Dim summed);
  void record(Context& ctx, History& history) const;
  void multiply(Context& ctx, const Operand& a, const Operand& b, const Tensor& c, bool accumulate) const;

  const Fp8Scaling scaling_;
  const int entries_;  // of a history: those of the last steps, and that of this step
  History histories_[3];
  Split split_;
};

// Makes the linear layers that the patterns match compute in FP8. INVALID_ARGUMENT: an option, or a pattern
// that matches no layer that can. NOT_FOUND: nothing matches a pattern. INVALID_STATE: a layer does already.
void apply_fp8(const ModulePtr& root, const Fp8Options& options);

}  // namespace gangway

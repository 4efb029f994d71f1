// Linear layers in FP8: the three products of a layer take 8-bit codes (ops/fp8.h) of their operands.
// Everything else stays as it is: values and master values of the weight, its gradient, the bias, what a
// frame saves, reductions over ranks. Each product makes its codes anew from the values in the compute dtype,
// so that a recomputation has the same codes. But where tensor parallelism gathers an input that only such
// layers read, it gathers the codes (nn/coded_input.h), and they all take these.
//
// Thread rule: that of a module.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "nn/module.h"

namespace gangway {

struct Fp8ScaleArgs;

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

// Gives the ranks that have parts of what shares a scale the scale of the whole. Parallelism implements it.
class Fp8ScaleJoin {
 public:
  virtual ~Fp8ScaleJoin() = default;
  // Replaces each scale, or magnitude, by the largest of all ranks.
  virtual void join(Context& ctx, const Tensor& scale) = 0;
};

// The products of one layer. All memory that they take is in the context's temporaries. Letters: T tokens, I
// inputs, O outputs.
class Fp8Products {
 public:
  explicit Fp8Products(const Fp8Options& options);

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
  void weight_gradient(Context& ctx, const Tensor& dy_TO, const Operand& x_IT, const Tensor& dw_OI,
                       bool accumulate);

  // For an input whose rows lie on several ranks, of which x_TI are this rank's: write into `made` the codes
  // of these rows that input(), or weight_gradient(), would make of the whole input; transposed_part()
  // transposes them. `join` is of those ranks. made.scale is [1], which transposed_part() only reads, or the
  // scales of the rows of made.codes.
  void input_part(Context& ctx, const Tensor& x_TI, Fp8ScaleJoin& join, const Operand& made);
  void transposed_part(Context& ctx, const Tensor& x_TI, Fp8ScaleJoin& join, const Operand& made) const;
  bool has_scales_of_rows() const { return scaling_ == Fp8Scaling::row; }
  Fp8Scaling scaling() const { return scaling_; }
  int history() const { return entries_ - 1; }
  // Whether both make the same codes of an input that both have always read.
  bool makes_codes_of(const Fp8Products& other) const {
    return scaling_ == other.scaling_ && (scaling_ != Fp8Scaling::delayed || entries_ == other.entries_);
  }
  // Makes both use one history of the input's magnitudes. Call it for layers that read the same input.
  void share_inputs(const Fp8Products& other) { histories_[kInput] = other.histories_[kInput]; }

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
  // Where scales are delayed, makes the scale follow from the history.
  void delay(Context& ctx, Which which, Fp8ScaleArgs& scale);
  void record(Context& ctx, History& history) const;
  // For an input of which x is this rank's part.
  void write_delayed_scale(Context& ctx, const Tensor& x, Fp8ScaleJoin& join, const Tensor& scale);
  void multiply(Context& ctx, const Operand& a, const Operand& b, const Tensor& c, bool accumulate) const;

  const Fp8Scaling scaling_;
  const int entries_;  // of a history: those of the last steps, and that of this step
  std::array<std::shared_ptr<History>, 3> histories_;
  Split split_;
};

// Makes the linear layers that the patterns match compute in FP8. INVALID_ARGUMENT: an option, or a pattern
// that matches no layer that can. NOT_FOUND: nothing matches a pattern. INVALID_STATE: a layer does already.
void apply_fp8(const ModulePtr& root, const Fp8Options& options);

}  // namespace gangway

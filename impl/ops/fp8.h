// The operations of products in FP8. A tensor becomes codes (base/fp8.h) and a scale, and stands for code *
// scale. The scale of some elements is max(the largest of their magnitudes, 1e-12) / top in f32, where top is
// the largest number of the codes; a code is to_fp8(element / scale). A tensor in f64 is rounded to f32
// first. NaN has no part in a magnitude and is kept as a code. Of elements with an infinity each becomes NaN
// or 0, so that the infinity reaches the result as NaN.
//
// Some kinds of device have none of these operations. The Ops of a device that has them is an Fp8Ops, too.
//
// Thread rule: that of Ops.
#pragma once

#include "ops/ops.h"

namespace gangway {

// Which elements of a matrix share a scale: all of them, those of a row, or those of a column.
enum class Fp8Scale : uint8_t { tensor, row, column };

// Writes the scales of x [R, C] (rows may be strided) for codes of dtype `codes` to `scale`, f32 [1], [R] or
// [C].
//
// With a history (f32 [n], `of` is tensor) the scale follows from the largest magnitude that the history has,
// that of entry `now` aside, or from x where that is 0 (nothing is known yet) or x has an infinity. With
// `record`, entry `now` becomes the largest of itself and of x's finite magnitude.
struct Fp8ScaleArgs {
  Tensor x, scale;
  DType codes = DType::f8_e4m3;
  Fp8Scale of = Fp8Scale::tensor;
  Tensor history = {};
  int now = 0;
  bool record = false;
};

// Writes the codes of x [R, C] (rows may be strided): `codes` [R, C] and `transposed` [C, R], contiguous, each
// may be absent; both have one dtype, f8_e4m3 or f8_e5m2.
struct Fp8CodesArgs {
  Tensor x, scale;
  Fp8Scale of = Fp8Scale::tensor;
  Tensor codes = {}, transposed = {};
};

// c = (a a_scale) (b b_scale)^T [+ c]. a is [M, K] and b [N, K], contiguous codes of one dtype each; a_scale is
// [1] or [M], b_scale [1] or [N]. c is [M, N], rows may be strided. Sums are in f32, in f64 if c is f64.
// A CPU decodes the codes into a_values and b_values, [M, K] and [N, K] in the dtype of the sums; they are
// absent on a GPU and in a plan for one, where cuBLASLt multiplies the codes. There K and N are multiples of
// 16, and the scales of rows begin at addresses that are.
struct Fp8GemmArgs {
  Tensor a, b, a_scale, b_scale, c;
  bool accumulate = false;
  Tensor a_values = {}, b_values = {};
};

class Fp8Ops {
 public:
  virtual ~Fp8Ops() = default;
  virtual void fp8_scale(const Fp8ScaleArgs& args, Stream& stream) = 0;
  virtual void fp8_codes(const Fp8CodesArgs& args, Stream& stream) = 0;
  virtual void fp8_gemm(const Fp8GemmArgs& args, Stream& stream) = 0;
  // NOT_SUPPORTED: the device has no products of codes, or, with `rows`, none with a scale for each row.
  virtual void check_fp8(bool /*rows*/) const {}
};

// NOT_SUPPORTED: the device has no products in FP8.
Fp8Ops& fp8_ops(Ops& ops);

// Checks of the arguments, as in ops/check.h.
void check(const Fp8ScaleArgs& args);
void check(const Fp8CodesArgs& args);
void check(const Fp8GemmArgs& args);

}  // namespace gangway

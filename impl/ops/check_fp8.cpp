#include "ops/check.h"
#include "ops/fp8.h"

namespace gangway {
namespace {

void need(const char* what, const Tensor& t, DType dtype, const Shape& shape) {
  if (!t || t.dtype() != dtype || !(t.shape() == shape) || !t.contiguous())
    fail(Code::internal, what, " is ", t ? t.text() : "absent", ", not contiguous ", name(dtype), " ",
         shape.text());
}

void need_matrix(const char* what, const Tensor& t) {
  if (!t || !is_floating(t.dtype()) || t.rank() != 2 || (t.count() != 0 && t.dim(1) > 1 && t.stride(1) != 1))
    fail(Code::internal, what, " is ", t ? t.text() : "absent", ", not a matrix of floats with whole rows");
}

void need_codes(const char* what, const Tensor& t, const Shape& shape) {
  if (t && (t.dtype() == DType::f8_e4m3 || t.dtype() == DType::f8_e5m2))
    return need(what, t, t.dtype(), shape);
  fail(Code::internal, what, " is ", t ? t.text() : "absent", ", not codes of FP8");
}

Shape scales_of(Fp8Scale of, const Tensor& x) {
  return {of == Fp8Scale::tensor ? 1 : of == Fp8Scale::row ? x.dim(0) : x.dim(1)};
}

void need_scale(const char* what, const Tensor& scale, int64_t rows) {
  if (scale && scale.count() == 1) return need(what, scale, DType::f32, {1});
  need(what, scale, DType::f32, {rows});
}

}  // namespace

Fp8Ops& fp8_ops(Ops& ops) {
  auto* const found = dynamic_cast<Fp8Ops*>(&ops);
  if (found == nullptr)
    fail(Code::not_supported, "device \"", ops.device().name(), "\" has no products in FP8; leave FP8 out");
  return *found;
}

void check(const Fp8ScaleArgs& args) {
  need_matrix("fp8_scale.x", args.x);
  need("fp8_scale.scale", args.scale, DType::f32, scales_of(args.of, args.x));
  GW_CHECK(args.codes == DType::f8_e4m3 || args.codes == DType::f8_e5m2, ==, true);
  if (!args.history) return;
  GW_CHECK(args.of == Fp8Scale::tensor, ==, true);
  need("fp8_scale.history", args.history, DType::f32, {args.history.count()});
  GW_CHECK(args.now, >=, 0);
  GW_CHECK(args.now, <, args.history.count());
}

void check(const Fp8CodesArgs& args) {
  need_matrix("fp8_codes.x", args.x);
  need("fp8_codes.scale", args.scale, DType::f32, scales_of(args.of, args.x));
  if (args.codes) need_codes("fp8_codes.codes", args.codes, {args.x.dim(0), args.x.dim(1)});
  if (args.transposed) need_codes("fp8_codes.transposed", args.transposed, {args.x.dim(1), args.x.dim(0)});
  if (args.codes && args.transposed) GW_CHECK(args.codes.dtype() == args.transposed.dtype(), ==, true);
}

void check(const Fp8GemmArgs& args) {
  need_matrix("fp8_gemm.c", args.c);
  if (!args.a || args.a.rank() != 2) fail(Code::internal, "fp8_gemm.a is not a matrix");
  const int64_t m = args.c.dim(0), n = args.c.dim(1), k = args.a.dim(1);
  need_codes("fp8_gemm.a", args.a, {m, k});
  need_codes("fp8_gemm.b", args.b, {n, k});
  need_scale("fp8_gemm.a_scale", args.a_scale, m);
  need_scale("fp8_gemm.b_scale", args.b_scale, n);
  if (args.a_values) need("fp8_gemm.a_values", args.a_values, accumulator(args.c.dtype()), {m, k});
  if (args.b_values) need("fp8_gemm.b_values", args.b_values, accumulator(args.c.dtype()), {n, k});
}

}  // namespace gangway

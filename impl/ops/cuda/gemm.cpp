#include "ops/cuda/gemm.h"

#include <algorithm>
#include <utility>

// cuBLASLt stores matrices by columns, Gangway by rows. So this file computes c = a b as c^T = b^T a^T:
// cuBLASLt's first operand is b, and its rows are c's columns.

namespace gangway::cuda {
namespace {

constexpr size_t kWorkspaceBytes = size_t{32} << 20;  // NVIDIA's advice for sm_90

void check(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  fail(status == CUBLAS_STATUS_ALLOC_FAILED ? Code::out_of_memory : Code::internal, "cublasLt: ", what,
       ": status ", static_cast<int>(status), " (", cublasLtGetStatusString(status), ")");
}

// Owns a handle of cuBLASLt.
template <typename Handle, cublasStatus_t (*destroy)(Handle)>
class Owned {
 public:
  Owned() = default;
  ~Owned() {
    if (handle != nullptr) destroy(handle);
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  Handle handle = nullptr;
};
using Description = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Layout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

cudaDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::f64: return CUDA_R_64F;
    case DType::bf16: return CUDA_R_16BF;
    case DType::f16: return CUDA_R_16F;
    case DType::f8_e4m3: return CUDA_R_8F_E4M3;
    case DType::f8_e5m2: return CUDA_R_8F_E5M2;
    default: return CUDA_R_32F;
  }
}

int64_t row_stride(const Tensor& t) { return t.dim(0) > 1 ? t.stride(0) : std::max<int64_t>(1, t.dim(1)); }

// Returns the largest power of two up to 256 that divides the address.
uint32_t alignment_of(const Tensor& t) {
  const uintptr_t address = reinterpret_cast<uintptr_t>(t.raw());
  return static_cast<uint32_t>(std::min<uintptr_t>(256, address & (~address + 1)));
}

void make_layout(Layout& layout, const Tensor& t) {
  check(cublasLtMatrixLayoutCreate(&layout.handle, type_of(t.dtype()), static_cast<uint64_t>(t.dim(1)),
                                   static_cast<uint64_t>(t.dim(0)), row_stride(t)),
        "cublasLtMatrixLayoutCreate");
}

template <typename T>
void set(const Description& to, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  check(cublasLtMatmulDescSetAttribute(to.handle, attribute, &value, sizeof(value)),
        "cublasLtMatmulDescSetAttribute");
}
template <typename T>
void set(const Preference& to, cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
  check(cublasLtMatmulPreferenceSetAttribute(to.handle, attribute, &value, sizeof(value)),
        "cublasLtMatmulPreferenceSetAttribute");
}

// Returns whether cuBLASLt adds the bias.
bool takes_bias(const GemmArgs& args) {
  return args.bias && args.bias.dtype() == args.c.dtype() && args.c.dtype() != DType::f64;
}

void describe(Description& product, const GemmArgs& args) {
  const bool f64 = args.a.dtype() == DType::f64;
  check(cublasLtMatmulDescCreate(&product.handle, f64 ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                                 f64 ? CUDA_R_64F : CUDA_R_32F),
        "cublasLtMatmulDescCreate");
  set(product, CUBLASLT_MATMUL_DESC_TRANSA, args.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(product, CUBLASLT_MATMUL_DESC_TRANSB, args.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (!takes_bias(args)) return;
  set(product, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
  const void* const bias = args.bias.raw();
  set(product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
}

// What decides about the algorithm of c = op(a) op(b), and begins its refusal.
struct Operands {
  const Tensor &a, &b, &c;
  bool transpose_a, transpose_b;
};

cublasLtMatmulAlgo_t choose(cublasLtHandle_t handle, const Operands& args, const Description& product,
                            const Layout& a, const Layout& b, const Layout& c, const char* hint) {
  Preference preference;
  check(cublasLtMatmulPreferenceCreate(&preference.handle), "cublasLtMatmulPreferenceCreate");
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes);
  // cuBLASLt must add parts of a sum in f32, not in a 16-bit type.
  set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(args.b));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(args.a));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(args.c));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(args.c));
  cublasLtMatmulHeuristicResult_t found = {};
  int count = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle, product.handle, b.handle, a.handle, c.handle, c.handle, preference.handle, 1, &found, &count);
  if (status != CUBLAS_STATUS_SUCCESS || count == 0)
    fail(Code::not_supported, "cublasLt has no algorithm for ", args.a.text(),
         args.transpose_a ? " transposed" : "", " times ", args.b.text(),
         args.transpose_b ? " transposed" : "", " into ", args.c.text(), " (",
         cublasLtGetStatusString(status), ")", hint);
  return found.algo;
}

// Products of codes have one form: both operands are contiguous along the dim that is summed.
void describe(Description& product, const Fp8GemmArgs& args) {
  check(cublasLtMatmulDescCreate(&product.handle, CUBLAS_COMPUTE_32F, CUDA_R_32F),
        "cublasLtMatmulDescCreate");
  set(product, CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  set(product, CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N);
  const void *const a_scale = args.a_scale.raw(), *const b_scale = args.b_scale.raw();
  set(product, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, b_scale);
  set(product, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, a_scale);
}

bool scales_rows(const Fp8GemmArgs& args) { return args.a_scale.count() > 1 || args.b_scale.count() > 1; }

#if CUBLAS_VERSION >= 120900
constexpr bool kHasScalesOfRows = true;
void describe_rows(Description& product) {
  set(product, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F);
  set(product, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F);
}
#else
constexpr bool kHasScalesOfRows = false;
void describe_rows(Description&) {}
#endif

void refuse_scales_of_rows() {
  if (!kHasScalesOfRows)
    fail(Code::not_supported,
         "this build of the module has a cuBLAS before 12.9, which takes no scales of rows; take scales of "
         "tensors");
}

void refuse_what_codes_lack(const Fp8GemmArgs& args) {
  constexpr int64_t kMultiple = 16;
  if (args.c.dtype() == DType::f64)
    fail(Code::not_supported, "FP8 on a GPU computes in f32, bf16 or f16, not in f64");
  if (args.a.dim(1) % kMultiple != 0)
    fail(Code::not_supported, "cublasLt multiplies codes of FP8 along a multiple of ", kMultiple,
         ", not along ", args.a.dim(1));
  // cuBLASLt reads a scale of each row of both operands then.
  if (scales_rows(args) && (args.a_scale.count() != args.c.dim(0) || args.b_scale.count() != args.c.dim(1)))
    fail(Code::not_supported, "cublasLt takes scales of the rows of both operands or of neither, not ",
         args.a_scale.count(), " for ", args.c.dim(0), " rows and ", args.b_scale.count(), " for ",
         args.c.dim(1));
  if (scales_rows(args)) refuse_scales_of_rows();
}

}  // namespace

Products::Products(int device) {
  const OnDevice on(device);
  check(cublasLtCreate(&handle_), "cublasLtCreate");
}
Products::~Products() { cublasLtDestroy(handle_); }

void Products::gemm(const GemmArgs& args, Stream& stream) {
  const int64_t depth = args.a.dim(args.transpose_a ? 0 : 1);
  if (args.c.count() == 0) return;
  bool add = args.accumulate;
  if (depth == 0) {
    if (args.bias || !add) start_rows(args.c, args.bias, add, stream);
    return;
  }
  if (args.bias && !takes_bias(args)) {
    start_rows(args.c, args.bias, add, stream);
    add = true;
  }
  Description product;
  Layout a, b, c;
  describe(product, args);
  make_layout(a, args.a);
  make_layout(b, args.b);
  make_layout(c, args.c);
  Key key = {static_cast<int64_t>(args.a.dtype()),
             static_cast<int64_t>(args.c.dtype()),
             args.c.dim(0),
             args.c.dim(1),
             depth,
             row_stride(args.a),
             row_stride(args.b),
             row_stride(args.c),
             args.transpose_a,
             args.transpose_b,
             takes_bias(args),
             alignment_of(args.a),
             alignment_of(args.b),
             alignment_of(args.c)};
  auto chosen = algorithms_.find(key);
  if (chosen == algorithms_.end())
    chosen = algorithms_
                 .emplace(std::move(key),
                          choose(handle_, {args.a, args.b, args.c, args.transpose_a, args.transpose_b},
                                 product, a, b, c, ""))
                 .first;
  const double one64 = 1, beta64 = add ? 1 : 0;
  const float one32 = 1, beta32 = add ? 1 : 0;
  const bool f64 = args.a.dtype() == DType::f64;
  check(cublasLtMatmul(handle_, product.handle, f64 ? static_cast<const void*>(&one64) : &one32, args.b.raw(),
                       b.handle, args.a.raw(), a.handle, f64 ? static_cast<const void*>(&beta64) : &beta32,
                       args.c.raw(), c.handle, args.c.raw(), c.handle, &chosen->second,
                       workspace(stream, kWorkspaceBytes), kWorkspaceBytes, native(stream)),
        "cublasLtMatmul");
}

void Products::check_fp8(int device, bool rows) {
  constexpr int kFirst = 89, kFirstWithRows = 90;
  int major = 0, minor = 0;
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "cudaDeviceGetAttribute");
  check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), "cudaDeviceGetAttribute");
  const int found = 10 * major + minor;
  if (found < kFirst)
    fail(Code::not_supported, "FP8 takes a GPU of sm_", kFirst, " or newer, and device cuda:", device,
         " is sm_", found, "; leave FP8 out");
  if (rows && found < kFirstWithRows)
    fail(Code::not_supported, "FP8 with scales of rows takes a GPU of sm_", kFirstWithRows,
         ", and device cuda:", device, " is sm_", found, "; take scales of tensors");
  if (rows) refuse_scales_of_rows();
}

void Products::fp8_gemm(const Fp8GemmArgs& args, Stream& stream) {
  if (args.c.count() == 0) return;
  const int64_t depth = args.a.dim(1);
  if (depth == 0) {
    if (!args.accumulate) start_rows(args.c, Tensor(), false, stream);
    return;
  }
  refuse_what_codes_lack(args);
  Description product;
  Layout a, b, c;
  describe(product, args);
  const bool rows = scales_rows(args);
  if (rows) describe_rows(product);
  make_layout(a, args.a);
  make_layout(b, args.b);
  make_layout(c, args.c);
  Key key = {static_cast<int64_t>(args.a.dtype()),
             static_cast<int64_t>(args.b.dtype()),
             static_cast<int64_t>(args.c.dtype()),
             args.c.dim(0),
             args.c.dim(1),
             depth,
             row_stride(args.c),
             rows,
             alignment_of(args.a),
             alignment_of(args.b),
             alignment_of(args.c)};
  auto chosen = algorithms_.find(key);
  if (chosen == algorithms_.end())
    chosen =
        algorithms_
            .emplace(std::move(key),
                     choose(handle_, {args.a, args.b, args.c, false, true}, product, a, b, c,
                            rows ? "; scales of rows take a GPU of sm_90, scales of tensors one of sm_89 "
                                   "or newer, and columns of the result a multiple of 16"
                                 : "; FP8 takes a GPU of sm_89 or newer, and columns of the result a "
                                   "multiple of 16"))
            .first;
  const float one = 1, beta = args.accumulate ? 1 : 0;
  check(cublasLtMatmul(handle_, product.handle, &one, args.b.raw(), b.handle, args.a.raw(), a.handle, &beta,
                       args.c.raw(), c.handle, args.c.raw(), c.handle, &chosen->second,
                       workspace(stream, kWorkspaceBytes), kWorkspaceBytes, native(stream)),
        "cublasLtMatmul");
}

}  // namespace gangway::cuda

#include "ops/cuda/gemm.h"

#include <algorithm>
#include <utility>

#include "base/config.h"

// cuBLASLt stores matrices by columns, Gangway by rows. So this file computes c = a b as c^T = b^T a^T:
// cuBLASLt's first operand is b, and its rows are c's columns.

namespace gangway::cuda {
namespace {

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

}  // namespace

// What decides about the algorithm of c = op(a) op(b), and how its refusal begins and ends.
struct Products::Operands {
  const Tensor &a, &b, &c;
  bool transpose_a, transpose_b;
  const char* hint;
};

namespace {

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
  if (!scales_rows(args)) return;
  refuse_scales_of_rows();
  for (const Tensor* const scale : {&args.a_scale, &args.b_scale})
    if (alignment_of(*scale) < kMultiple)
      fail(Code::internal, "cublasLt reads scales of rows from multiples of ", kMultiple, " bytes, not from ",
           scale->byte_offset());
}

template <typename Args>
LtProduct lt_product(cublasLtHandle_t handle, const Description& how, const Layout& a, const Layout& b,
                     const Layout& c, const Args& args, bool add) {
  const size_t item = item_bytes(args.c.dtype());
  return {.handle = handle,
          .how = how.handle,
          .a = b.handle,
          .b = a.handle,
          .c = c.handle,
          .a_data = args.b.raw(),
          .b_data = args.a.raw(),
          .c_data = args.c.raw(),
          .rows = static_cast<size_t>(args.c.dim(0)),
          .row_bytes = static_cast<size_t>(args.c.dim(1)) * item,
          .stride_bytes = static_cast<size_t>(row_stride(args.c)) * item,
          .add = add,
          .f64 = args.a.dtype() == DType::f64};
}

}  // namespace

Products::Products(int device) : most_answers_(read_config().cuda_tuning ? kMostAnswers : 1) {
  const OnDevice on(device);
  check(cublasLtCreate(&handle_), "cublasLtCreate");
}
Products::~Products() { cublasLtDestroy(handle_); }

std::string Products::words() const {
  return most_answers_ > 1 ? "the fastest of its algorithms for each shape (GANGWAY_CUDA_TUNING = 1)"
                           : "its first algorithm for each shape (GANGWAY_CUDA_TUNING = 0)";
}

Products::Answers Products::ask(const LtProduct& product, const Operands& args) const {
  Preference preference;
  check(cublasLtMatmulPreferenceCreate(&preference.handle), "cublasLtMatmulPreferenceCreate");
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kStreamWorkspaceBytes);
  // cuBLASLt must add parts of a sum in f32, not in a 16-bit type.
  set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(args.b));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(args.a));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(args.c));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(args.c));
  cublasLtMatmulHeuristicResult_t found[kMostAnswers] = {};
  int count = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(handle_, product.how, product.a, product.b, product.c, product.c,
                                     preference.handle, kMostAnswers, found, &count);
  // Without a choice it asks for as many, so that the first answer is the same.
  Answers answers;
  for (int i = 0; i < count && static_cast<int>(answers.size()) < most_answers_; ++i)
    if (found[i].state == CUBLAS_STATUS_SUCCESS) answers.push_back(found[i].algo);
  if (status != CUBLAS_STATUS_SUCCESS || answers.empty())
    fail(Code::not_supported, "cublasLt has no algorithm for ", args.a.text(),
         args.transpose_a ? " transposed" : "", " times ", args.b.text(),
         args.transpose_b ? " transposed" : "", " into ", args.c.text(), " (",
         cublasLtGetStatusString(status), ")", args.hint);
  return answers;
}

void Products::run(Key key, const LtProduct& product, const Operands& operands, Stream& stream) {
  auto known = algorithms_.find(key);
  if (known == algorithms_.end()) known = algorithms_.emplace(std::move(key), ask(product, operands)).first;
  Answers& answers = known->second;
  if (answers.size() > 1)
    if (const std::optional<cublasLtMatmulAlgo_t> best = fastest(product, answers, stream)) answers = {*best};
  check(multiply(product, answers[0], stream), "cublasLtMatmul");
}

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
  run(std::move(key), lt_product(handle_, product, a, b, c, args, add),
      {args.a, args.b, args.c, args.transpose_a, args.transpose_b, ""}, stream);
}

void Products::check_fp8(int device, bool rows) {
  constexpr int kFirst = 89;
  constexpr int kMajorWithRows = 9;  // cuBLASLt has no such product for later GPUs either
  int major = 0, minor = 0;
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "cudaDeviceGetAttribute");
  check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), "cudaDeviceGetAttribute");
  const int found = 10 * major + minor;
  if (found < kFirst)
    fail(Code::not_supported, "FP8 takes a GPU of sm_", kFirst, " or newer, and device cuda:", device,
         " is sm_", found, "; leave FP8 out");
  if (rows && major != kMajorWithRows)
    fail(Code::not_supported, "FP8 with scales of rows takes a GPU of sm_", kMajorWithRows,
         "0, and device cuda:", device, " is sm_", found, "; take scales of tensors");
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
  run(std::move(key), lt_product(handle_, product, a, b, c, args, args.accumulate),
      {args.a, args.b, args.c, false, true,
       rows ? "; scales of rows take a GPU of sm_90, scales of tensors one of sm_89 or newer, and columns of "
              "the result a multiple of 16"
            : "; FP8 takes a GPU of sm_89 or newer, and columns of the result a multiple of 16"},
      stream);
}

}  // namespace gangway::cuda

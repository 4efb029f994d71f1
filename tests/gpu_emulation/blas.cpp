// Computes cuBLASLt's products by plain loops in a fixed order. An algorithm remembers the product for which
// it was chosen. A product of other sizes, or with less aligned operands, is refused, because a device would
// compute it wrongly.
#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "base/fp8.h"
#include "gpu_emulation/blas.h"
#include "gpu_emulation/log.h"
#include "gpu_emulation/memory.h"
#include "gpu_emulation/state.h"

struct cublasLtContext {
  int device;
};
struct cublasLtMatmulDescOpaque {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  cublasOperation_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  const float *a_scale = nullptr, *b_scale = nullptr;  // of 8-bit operands
  cublasLtMatmulMatrixScale_t a_mode = CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F,
                              b_mode = CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
};
struct cublasLtMatrixLayoutOpaque {
  cudaDataType_t type;
  uint64_t rows, columns;
  int64_t stride;
};
struct cublasLtMatmulPreferenceOpaque {
  uint64_t workspace = 0;
  uint32_t alignment[4] = {256, 256, 256, 256};
};

using namespace gpu_emulation;

namespace {

struct Planted {
  std::mutex mutex;
  std::vector<Answer> answers;
};
Planted& planted() {
  static auto* const all =
      new Planted;  // never destroyed, because threads of streams outlive all other objects
  return *all;
}
std::vector<Answer> answers() {
  const std::lock_guard lock(planted().mutex);
  return planted().answers.empty() ? std::vector<Answer>(1) : planted().answers;
}
// An algorithm that was chosen before other answers were planted is the first of them.
size_t answer_of(const cublasLtMatmulAlgo_t& algorithm, const std::vector<Answer>& all) {
  return algorithm.data[6] < all.size() ? algorithm.data[6] : 0;
}

struct Product {
  cublasLtMatmulDescOpaque how;
  cublasLtMatrixLayoutOpaque a, b, c;
  const void *a_data, *b_data;
  void* c_data;
  double alpha, beta;
  Answer answer;
};

cublasStatus_t refuse_product(cublasStatus_t status, const std::string& words) {
  refuse(cudaErrorInvalidValue, "cublasLt: " + words);
  return status;
}

bool has_8_bits(cudaDataType_t type) { return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2; }
size_t bytes_of(cudaDataType_t type) {
  return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : has_8_bits(type) ? 1 : 2;
}
uint64_t rows_of(const cublasLtMatrixLayoutOpaque& m, cublasOperation_t op) {
  return op == CUBLAS_OP_N ? m.rows : m.columns;
}
uint64_t columns_of(const cublasLtMatrixLayoutOpaque& m, cublasOperation_t op) {
  return op == CUBLAS_OP_N ? m.columns : m.rows;
}

// Returns what is wrong with a product of 8-bit numbers on a GPU of sm_90.
std::string wrong_codes(const cublasLtMatmulDescOpaque& how, const cublasLtMatrixLayoutOpaque& a,
                        const cublasLtMatrixLayoutOpaque& b, const cublasLtMatrixLayoutOpaque& c) {
  if (!has_8_bits(a.type) || !has_8_bits(b.type) || has_8_bits(c.type) || c.type == CUDA_R_64F ||
      (a.type == CUDA_R_8F_E5M2 && b.type == CUDA_R_8F_E5M2))
    return "types beside 8 bits";
  if (how.transpose_a != CUBLAS_OP_T || how.transpose_b != CUBLAS_OP_N) return "8 bits without the form TN";
  if (c.rows % 16 != 0) return "8 bits into columns that are no multiple of 16";
  if (a.rows % 16 != 0 || a.stride % 16 != 0 || b.stride % 16 != 0 ||
      c.stride * static_cast<int64_t>(bytes_of(c.type)) % 16 != 0)
    return "8 bits whose depth or strides are no multiple of 16";
  if (how.a_scale == nullptr || how.b_scale == nullptr || how.a_mode != how.b_mode) return "scales";
  if (how.a_mode == CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F &&
      (reinterpret_cast<uintptr_t>(how.a_scale) | reinterpret_cast<uintptr_t>(how.b_scale)) % 16 != 0)
    return "scales of rows that are not aligned to 16 bytes";
  if (how.compute != CUBLAS_COMPUTE_32F || how.scale != CUDA_R_32F) return "type of computation";
  return "";
}

// Returns what is wrong with a product, or an empty string if cuBLASLt accepts it.
std::string wrong(const cublasLtMatmulDescOpaque& how, const cublasLtMatrixLayoutOpaque& a,
                  const cublasLtMatrixLayoutOpaque& b, const cublasLtMatrixLayoutOpaque& c) {
  for (const auto* const m : {&a, &b, &c}) {
    if (m->rows == 0 || m->columns == 0) return "an empty matrix";
    if (m->stride < static_cast<int64_t>(m->rows))
      return "columns of " + std::to_string(m->rows) + " rows lie " + std::to_string(m->stride) + " apart";
  }
  if (rows_of(a, how.transpose_a) != c.rows || columns_of(b, how.transpose_b) != c.columns ||
      columns_of(a, how.transpose_a) != rows_of(b, how.transpose_b))
    return "sizes that do not go together";
  if (has_8_bits(a.type) || has_8_bits(b.type)) return wrong_codes(how, a, b, c);
  if (a.type != b.type || (c.type != a.type && !(bytes_of(a.type) == 2 && c.type == CUDA_R_32F)))
    return "types";
  const bool f64 = a.type == CUDA_R_64F;
  if ((how.compute == CUBLAS_COMPUTE_64F) != f64 || (how.scale == CUDA_R_64F) != f64)
    return "type of computation";
  if (how.epilogue == CUBLASLT_EPILOGUE_BIAS && f64) return "a bias beside f64";
  return "";
}

template <typename S>
S get(const void* data, cudaDataType_t type, size_t at) {
  switch (type) {
    case CUDA_R_64F: return static_cast<S>(static_cast<const double*>(data)[at]);
    case CUDA_R_32F: return static_cast<S>(static_cast<const float*>(data)[at]);
    case CUDA_R_8F_E4M3:
      return static_cast<S>(gangway::from_fp8<gangway::E4m3>(static_cast<const uint8_t*>(data)[at]));
    case CUDA_R_8F_E5M2:
      return static_cast<S>(gangway::from_fp8<gangway::E5m2>(static_cast<const uint8_t*>(data)[at]));
    case CUDA_R_16F: return static_cast<S>(__half2float(static_cast<const __half*>(data)[at]));
    default: return static_cast<S>(__bfloat162float(static_cast<const __nv_bfloat16*>(data)[at]));
  }
}
template <typename S>
void put(void* data, cudaDataType_t type, size_t at, S value) {
  switch (type) {
    case CUDA_R_64F: static_cast<double*>(data)[at] = static_cast<double>(value); break;
    case CUDA_R_32F: static_cast<float*>(data)[at] = static_cast<float>(value); break;
    case CUDA_R_16F: static_cast<__half*>(data)[at] = __float2half_rn(static_cast<float>(value)); break;
    default: static_cast<__nv_bfloat16*>(data)[at] = __float2bfloat16_rn(static_cast<float>(value));
  }
}

// Returns op(m) by columns, without gaps.
template <typename S>
std::vector<S> packed(const void* data, const cublasLtMatrixLayoutOpaque& m, cublasOperation_t op) {
  const uint64_t rows = rows_of(m, op), columns = columns_of(m, op);
  const size_t stride = static_cast<size_t>(m.stride);
  std::vector<S> all(rows * columns);
  for (uint64_t j = 0; j < columns; ++j)
    for (uint64_t i = 0; i < rows; ++i)
      all[j * rows + i] = get<S>(data, m.type, op == CUBLAS_OP_N ? j * stride + i : i * stride + j);
  return all;
}

template <typename S>
void multiply(const Product& p) {
  const std::vector<S> a = packed<S>(p.a_data, p.a, p.how.transpose_a),
                       b = packed<S>(p.b_data, p.b, p.how.transpose_b);
  const uint64_t rows = p.c.rows, depth = columns_of(p.a, p.how.transpose_a);
  std::vector<S> column(rows);
  for (uint64_t j = 0; j < p.c.columns; ++j) {
    std::fill(column.begin(), column.end(), S(0));
    for (uint64_t i = 0; i < depth; ++i) {
      const uint64_t k = p.answer.backwards ? depth - 1 - i : i;
      const S factor = b[j * depth + k];
      const S* const from = a.data() + k * rows;
      for (uint64_t row = 0; row < rows; ++row) column[row] += from[row] * factor;
    }
    for (uint64_t i = 0; i < rows; ++i) {
      const size_t at = j * static_cast<size_t>(p.c.stride) + i;
      S value = static_cast<S>(p.alpha) * column[i];
      if (p.how.a_scale != nullptr)
        value *=
            static_cast<S>(
                p.how.a_scale[p.how.a_mode == CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F ? i : 0]) *
            static_cast<S>(p.how.b_scale[p.how.b_mode == CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F ? j : 0]);
      if (p.beta != 0) value += static_cast<S>(p.beta) * get<S>(p.c_data, p.c.type, at);
      if (p.how.epilogue == CUBLASLT_EPILOGUE_BIAS) value += get<S>(p.how.bias, p.c.type, i);
      put(p.c_data, p.c.type, at, value);
    }
  }
}

// Returns the number of bytes from the first to the last element of a matrix.
size_t extent(const cublasLtMatrixLayoutOpaque& m) {
  return ((m.columns - 1) * static_cast<size_t>(m.stride) + m.rows) * bytes_of(m.type);
}
bool is_on_device(const void* data, size_t bytes) {
  const Where place = where(data);
  return place.place == Place::device && place.rest >= bytes;
}

// Returns the log entry from the view of the caller, who stores matrices by rows: c is m x n.
Entry entry_of(const Product& p) {
  const uint64_t depth = columns_of(p.a, p.how.transpose_a);
  const auto bytes = [](const cublasLtMatrixLayoutOpaque& m) {
    return static_cast<double>(m.rows) * static_cast<double>(m.columns) *
           static_cast<double>(bytes_of(m.type));
  };
  const char* const type = p.a.type == CUDA_R_64F    ? "f64"
                           : p.a.type == CUDA_R_32F  ? "f32"
                           : p.a.type == CUDA_R_16BF ? "bf16"
                           : has_8_bits(p.a.type)    ? "f8"
                                                     : "f16";
  Entry entry;
  entry.work = Work::product;
  entry.name = type;
  entry.m = p.c.columns;
  entry.n = p.c.rows;
  entry.k = depth;
  entry.flops =
      2.0 * static_cast<double>(p.c.rows) * static_cast<double>(p.c.columns) * static_cast<double>(depth);
  entry.bytes = bytes(p.a) + bytes(p.b) + bytes(p.c) * (p.beta != 0 ? 2 : 1);
  return entry;
}

bool same(const cublasLtMatrixLayoutOpaque& x, const cublasLtMatrixLayoutOpaque& y) {
  return x.type == y.type && x.rows == y.rows && x.columns == y.columns && x.stride == y.stride;
}

// Returns a hash of the product for which an algorithm is chosen.
uint64_t fingerprint(const cublasLtMatmulDescOpaque& how, const cublasLtMatrixLayoutOpaque& a,
                     const cublasLtMatrixLayoutOpaque& b, const cublasLtMatrixLayoutOpaque& c) {
  uint64_t hash = 1469598103934665603u;
  const auto mix = [&](uint64_t word) { hash = (hash ^ word) * 1099511628211u; };
  for (const uint64_t word : {uint64_t{how.transpose_a}, uint64_t{how.transpose_b}, uint64_t{how.epilogue},
                              uint64_t{how.a_mode}, uint64_t{how.b_mode}})
    mix(word);
  for (const auto* const m : {&a, &b, &c})
    for (const uint64_t word : {uint64_t{m->type}, m->rows, m->columns, static_cast<uint64_t>(m->stride)})
      mix(word);
  return hash;
}

}  // namespace

void gpu_emulation::plant_answers(std::vector<Answer> answers) {
  const std::lock_guard lock(planted().mutex);
  planted().answers = std::move(answers);
}

const char* cublasLtGetStatusString(cublasStatus_t status) {
  if (status == CUBLAS_STATUS_SUCCESS) return "success";
  thread_local std::string words;
  words = report();
  return words.empty() ? "an error that was asked for" : words.c_str();
}

#define ENTER_BLAS() \
  if (enter(__func__) != cudaSuccess) return CUBLAS_STATUS_EXECUTION_FAILED

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  ENTER_BLAS();
  *handle = new cublasLtContext{current_device()};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* product, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  ENTER_BLAS();
  *product = new cublasLtMatmulDescOpaque{.compute = compute, .scale = scale};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t product) {
  delete product;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product,
                                              cublasLtMatmulDescAttributes_t attribute, const void* value,
                                              size_t bytes) {
  ENTER_BLAS();
  const auto take = [&](auto& place) {
    if (bytes != sizeof(place))
      return refuse_product(CUBLAS_STATUS_INVALID_VALUE, "an attribute of another size");
    std::memcpy(&place, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
  };
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA: return take(product->transpose_a);
    case CUBLASLT_MATMUL_DESC_TRANSB: return take(product->transpose_b);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return take(product->epilogue);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return take(product->bias);
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER: return take(product->a_scale);
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER: return take(product->b_scale);
    case CUBLASLT_MATMUL_DESC_A_SCALE_MODE: return take(product->a_mode);
    case CUBLASLT_MATMUL_DESC_B_SCALE_MODE: return take(product->b_mode);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType_t type, uint64_t rows,
                                          uint64_t columns, int64_t stride) {
  ENTER_BLAS();
  *layout = new cublasLtMatrixLayoutOpaque{type, rows, columns, stride};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  ENTER_BLAS();
  *preference = new cublasLtMatmulPreferenceOpaque;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t bytes) {
  ENTER_BLAS();
  if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES && bytes == 8)
    std::memcpy(&preference->workspace, value, 8);
  else if (attribute == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK && bytes == 4)
    return CUBLAS_STATUS_SUCCESS;  // no sum here has several parts
  else if (attribute >= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES && bytes == 4)
    std::memcpy(&preference->alignment[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value, 4);
  else
    return refuse_product(CUBLAS_STATUS_INVALID_VALUE, "a preference of another size");
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t product,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t* results, int* found) {
  ENTER_BLAS();
  *found = 0;
  const std::string why = wrong(*product, *a, *b, *c);
  if (!why.empty() || !same(*c, *d)) return refuse_product(CUBLAS_STATUS_NOT_SUPPORTED, why);
  cublasLtMatmulHeuristicResult_t result = {};
  result.algo.data[0] = fingerprint(*product, *a, *b, *c);
  for (size_t i = 0; i < 4; ++i) result.algo.data[1 + i] = preference->alignment[i];
  result.algo.data[5] = result.workspaceSize = preference->workspace / 2;
  const std::vector<Answer> all = answers();
  *found = std::min(wanted, static_cast<int>(all.size()));
  for (int i = 0; i < *found; ++i) {
    result.algo.data[6] = static_cast<uint64_t>(i);
    result.state = all[static_cast<size_t>(i)].invalid ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
    results[i] = result;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* algorithm,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute,
                                                    void* value, size_t bytes, size_t* written) {
  ENTER_BLAS();
  if (bytes != sizeof(uint32_t))
    return refuse_product(CUBLAS_STATUS_INVALID_VALUE, "an attribute of another size");
  const std::vector<Answer> all = answers();
  const uint32_t splits = all[answer_of(*algorithm, all)].splits;
  const uint32_t scheme = splits > 1 ? uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE} : 0;
  *written = bytes;
  std::memcpy(value, attribute == CUBLASLT_ALGO_CONFIG_SPLITK_NUM ? &splits : &scheme, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t product, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace, size_t workspace_bytes,
                              cudaStream_t stream) {
  ENTER_BLAS();
  if (handle->device != current_device())
    return refuse_product(CUBLAS_STATUS_INVALID_VALUE, "a handle of another device");
  if (const std::string why = wrong(*product, *a_layout, *b_layout, *c_layout);
      !why.empty() || c != d || !same(*c_layout, *d_layout))
    return refuse_product(CUBLAS_STATUS_INVALID_VALUE, why);
  if (algorithm->data[0] != fingerprint(*product, *a_layout, *b_layout, *c_layout))
    return refuse_product(CUBLAS_STATUS_INVALID_VALUE, "an algorithm for another product");
  const void* const operands[] = {a, b, c, d};
  for (size_t i = 0; i < 4; ++i)
    if (reinterpret_cast<uintptr_t>(operands[i]) % algorithm->data[1 + i] != 0)
      return refuse_product(CUBLAS_STATUS_INVALID_VALUE,
                            "operand " + std::to_string(i) + " is less aligned than was said");
  if (workspace_bytes < algorithm->data[5] || !is_on_device(workspace, workspace_bytes))
    return refuse_product(CUBLAS_STATUS_INVALID_VALUE, "the workspace");
  if (!is_on_device(a, extent(*a_layout)) || !is_on_device(b, extent(*b_layout)) ||
      !is_on_device(d, extent(*d_layout)))
    return refuse_product(CUBLAS_STATUS_INVALID_VALUE, "an operand leaves its block");
  const std::vector<Answer> all = answers();
  const size_t answer = answer_of(*algorithm, all);
  if (all[answer].refused) return CUBLAS_STATUS_NOT_SUPPORTED;
  Product p = {*product, *a_layout, *b_layout, *d_layout, a, b, d, 0, 0, all[answer]};
  const bool f64 = product->scale == CUDA_R_64F;
  p.alpha = f64 ? *static_cast<const double*>(alpha) : static_cast<double>(*static_cast<const float*>(alpha));
  p.beta = f64 ? *static_cast<const double*>(beta) : static_cast<double>(*static_cast<const float*>(beta));
  Entry entry = entry_of(p);
  entry.answer = answer;
  const bool left_out = leaves_out(static_cast<size_t>(entry.bytes));
  log(stream, entry);
  const cudaError_t error = enqueue(stream, [p, workspace, workspace_bytes, left_out](Runner&) {
    pass_time(p.answer.milliseconds);
    if (left_out) return;
    std::memset(workspace, 0xff, std::min<size_t>(workspace_bytes, 4096));
    if (p.a.type == CUDA_R_64F)
      multiply<double>(p);
    else
      multiply<float>(p);
  });
  return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

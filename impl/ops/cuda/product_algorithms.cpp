#include "ops/cuda/product_algorithms.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <tuple>
#include <vector>

#include "tensor/tensor.h"

namespace gangway::cuda {
namespace {

constexpr int kRuns = 3;  // runs of an answer that are measured; one run before them is not
constexpr size_t kMostPieces = 16, kMostBytes = size_t{1} << 20;

class TimedEvent {
 public:
  TimedEvent() { check(cudaEventCreateWithFlags(&event_, cudaEventDefault), "cudaEventCreateWithFlags"); }
  ~TimedEvent() { cudaEventDestroy(event_); }
  TimedEvent(const TimedEvent&) = delete;
  TimedEvent& operator=(const TimedEvent&) = delete;
  void record(cudaStream_t stream) const { check(cudaEventRecord(event_, stream), "cudaEventRecord"); }
  cudaEvent_t event() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

bool splits_alike(const cublasLtMatmulAlgo_t& x, const cublasLtMatmulAlgo_t& y) {
  for (const auto attribute : {CUBLASLT_ALGO_CONFIG_SPLITK_NUM, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME}) {
    uint32_t of_x = 0, of_y = 0;
    size_t written = 0;
    for (const auto& [of, value] : {std::pair(&x, &of_x), std::pair(&y, &of_y)})
      if (cublasLtMatmulAlgoConfigGetAttribute(of, attribute, value, sizeof(*value), &written) !=
          CUBLAS_STATUS_SUCCESS)
        return false;  // nothing shows that they are alike
    if (of_x != of_y) return false;
  }
  return true;
}

// The rows whose bits are compared: all, or pieces of some rows at equal distances, the first and the last
// row among them. A result in 16 bits hides most differences between orders of a sum, so a few rows of a
// narrow result would prove nothing.
struct Sample {
  explicit Sample(const LtProduct& p)
      : rows(std::clamp<size_t>(kMostBytes / p.row_bytes, std::min<size_t>(2, p.rows), p.rows)),
        is_dense(p.rows == 1 || p.stride_bytes == p.row_bytes),
        pieces(is_dense && rows == p.rows ? 1 : std::min(kMostPieces, rows)),
        rows_of_piece(is_dense ? rows / pieces : 1) {}
  size_t first_row(size_t piece, const LtProduct& p) const {
    return pieces == 1 ? 0 : piece * (p.rows - rows_of_piece) / (pieces - 1);
  }
  const size_t rows;    // at most
  const bool is_dense;  // one copy takes several rows
  const size_t pieces, rows_of_piece;
};

// The pinned memory of a measurement, or none.
std::optional<Tensor> room_for(const LtProduct& product, const Sample& sample, Stream& stream) {
  const size_t bytes = sample.pieces * sample.rows_of_piece * product.row_bytes;
  try {
    return Tensor::allocate(stream.device().pinned_allocator(), DType::u8, {static_cast<int64_t>(bytes)});
  } catch (const Error& error) {
    if (error.code() != Code::out_of_memory) throw;
    return std::nullopt;
  }
}

// The result of a product that adds, which is measured in the place of that result. It waits on the host,
// because a plan of the device's memory does not count it; and in plain memory, because the device's pool
// would keep pinned memory.
class Kept {
 public:
  Kept(const LtProduct& product, Stream& stream)
      : product_(product),
        stream_(stream),
        bytes_(std::make_unique_for_overwrite<char[]>(product.rows * product.row_bytes)) {}
  // After a failure. The stream has work of the measurement alone, which ends.
  ~Kept() {
    if (copies_ != nullptr) cudaStreamSynchronize(copies_);
  }
  Kept(const Kept&) = delete;
  Kept& operator=(const Kept&) = delete;

  void take() {
    stream_.synchronize();  // a lost peer ends this wait, but not that of a copy of plain memory
    copy([](char* kept, char* result, size_t bytes) { return std::tuple(kept, result, bytes); });
  }
  void put_back() {
    copy([](char* kept, char* result, size_t bytes) { return std::tuple(result, kept, bytes); });
  }

 private:
  template <typename Order>
  void copy(Order order) {
    const bool is_dense = product_.rows == 1 || product_.stride_bytes == product_.row_bytes;
    const size_t pieces = is_dense ? 1 : product_.rows, each = product_.rows / pieces * product_.row_bytes;
    copies_ = native(stream_);
    for (size_t i = 0; i < pieces; ++i) {
      const auto [to, from, bytes] = order(
          bytes_.get() + i * each, static_cast<char*>(product_.c_data) + i * product_.stride_bytes, each);
      check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, copies_), "cudaMemcpyAsync");
    }
    stream_.synchronize();
    copies_ = nullptr;
  }

  const LtProduct& product_;
  Stream& stream_;
  const std::unique_ptr<char[]> bytes_;
  cudaStream_t copies_ = nullptr;  // while copies may be under way
};

class Measurement {
 public:
  Measurement(const LtProduct& product, const Tensor& room, const Sample& sample, Stream& stream)
      : product_(product), room_(room), sample_(sample), stream_(stream) {
    product_.add = false;
  }

  // Returns the milliseconds of the runs; none if cuBLASLt refuses the algorithm. read() gives its bits then.
  std::optional<float> measure(const cublasLtMatmulAlgo_t& algorithm) {
    if (multiply(product_, algorithm, stream_) != CUBLAS_STATUS_SUCCESS) return std::nullopt;
    const cudaStream_t on = native(stream_);
    begin_.record(on);
    for (int run = 0; run < kRuns; ++run) check(multiply(product_, algorithm, stream_), "cublasLtMatmul");
    end_.record(on);
    copy_sample(on);
    stream_.synchronize();  // a lost peer ends this wait
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin_.event(), end_.event()), "cudaEventElapsedTime");
    return milliseconds;
  }
  std::vector<char> read() const {
    std::vector<char> bytes(room_.bytes());
    std::memcpy(bytes.data(), room_.raw(), bytes.size());
    return bytes;
  }

 private:
  void copy_sample(cudaStream_t on) const {
    const size_t bytes = sample_.rows_of_piece * product_.row_bytes;
    for (size_t i = 0; i < sample_.pieces; ++i)
      check(cudaMemcpyAsync(static_cast<char*>(room_.raw()) + i * bytes,
                            static_cast<const char*>(product_.c_data) +
                                sample_.first_row(i, product_) * product_.stride_bytes,
                            bytes, cudaMemcpyDefault, on),
            "cudaMemcpyAsync");
  }

  LtProduct product_;
  const Tensor& room_;
  const Sample& sample_;
  Stream& stream_;
  const TimedEvent begin_, end_;
};

// Returns the fastest answer. The measured products have overwritten the result.
cublasLtMatmulAlgo_t fastest_in(const LtProduct& product, std::span<const cublasLtMatmulAlgo_t> answers,
                                const Tensor& room, const Sample& sample, Stream& stream) {
  Measurement trial(product, room, sample, stream);
  const std::optional<float> first = trial.measure(answers[0]);
  if (!first) return answers[0];
  const std::vector<char> bits = trial.read();
  if (std::all_of(bits.begin(), bits.end(), [](char byte) { return byte == 0; })) return answers[0];
  const cublasLtMatmulAlgo_t* best = answers.data();
  float least = *first;
  for (const cublasLtMatmulAlgo_t& answer : answers.subspan(1)) {
    if (!splits_alike(answers[0], answer)) continue;
    const std::optional<float> time = trial.measure(answer);
    if (!time || *time >= least || trial.read() != bits) continue;
    least = *time;
    best = &answer;
  }
  return *best;
}

}  // namespace

void check(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  fail(status == CUBLAS_STATUS_ALLOC_FAILED ? Code::out_of_memory : Code::internal, "cublasLt: ", what,
       ": status ", static_cast<int>(status), " (", cublasLtGetStatusString(status), ")");
}

cublasStatus_t multiply(const LtProduct& p, const cublasLtMatmulAlgo_t& algorithm, Stream& stream) {
  const double one64 = 1, beta64 = p.add ? 1 : 0;
  const float one32 = 1, beta32 = p.add ? 1 : 0;
  const void* const one = p.f64 ? static_cast<const void*>(&one64) : &one32;
  const void* const beta = p.f64 ? static_cast<const void*>(&beta64) : &beta32;
  void* const scratch = workspace(stream, kStreamWorkspaceBytes);
  return cublasLtMatmul(p.handle, p.how, one, p.a_data, p.a, p.b_data, p.b, beta, p.c_data, p.c, p.c_data,
                        p.c, &algorithm, scratch, kStreamWorkspaceBytes, native(stream));
}

std::optional<cublasLtMatmulAlgo_t> fastest(const LtProduct& product,
                                            std::span<const cublasLtMatmulAlgo_t> answers, Stream& stream) {
  if (is_captured(stream)) return std::nullopt;
  const Sample sample(product);
  const std::optional<Tensor> room = room_for(product, sample, stream);
  if (!room) return answers[0];
  if (!product.add) return fastest_in(product, answers, *room, sample, stream);
  std::optional<Kept> kept;
  try {
    kept.emplace(product, stream);
  } catch (const std::bad_alloc&) {
    return answers[0];
  }
  kept->take();
  const cublasLtMatmulAlgo_t best = fastest_in(product, answers, *room, sample, stream);
  kept->put_back();
  return best;
}

}  // namespace gangway::cuda

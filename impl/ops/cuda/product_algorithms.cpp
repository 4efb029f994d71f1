#include "ops/cuda/product_algorithms.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "tensor/tensor.h"

namespace gangway::cuda {
namespace {

constexpr int kRuns = 3;  // that are measured, after one that is not
constexpr size_t kMostRows = 16, kMostRowBytes = size_t{1} << 20;

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
      check(cublasLtMatmulAlgoConfigGetAttribute(of, attribute, value, sizeof(*value), &written),
            "cublasLtMatmulAlgoConfigGetAttribute");
    if (of_x != of_y) return false;
  }
  return true;
}

// The memory of a measurement.
struct Room {
  Tensor result;  // of a product that adds
  Tensor rows;    // on the host
};

std::optional<Room> room_for(const LtProduct& product, size_t rows, Stream& stream) {
  const auto bytes = [](size_t count) { return Shape{static_cast<int64_t>(count)}; };
  try {
    Room room;
    if (product.add)
      room.result = Tensor::allocate(stream.device().allocator(), DType::u8,
                                     bytes((product.rows - 1) * product.stride_bytes + product.row_bytes));
    room.rows =
        Tensor::allocate(stream.device().pinned_allocator(), DType::u8, bytes(rows * product.row_bytes));
    return room;
  } catch (const Error& error) {
    if (error.code() != Code::out_of_memory) throw;
    return std::nullopt;
  }
}

class Measurement {
 public:
  Measurement(const LtProduct& product, const Room& room, size_t rows, Stream& stream)
      : product_(product), room_(room), rows_(rows), stream_(stream) {
    if (product_.add) product_.c_data = room_.result.raw();
    product_.add = false;
  }

  // Returns the milliseconds of the runs; none if cuBLASLt refuses the algorithm. read() gives its bits then.
  std::optional<float> measure(const cublasLtMatmulAlgo_t& algorithm) {
    if (multiply(product_, algorithm, stream_) != CUBLAS_STATUS_SUCCESS) return std::nullopt;
    const cudaStream_t on = native(stream_);
    begin_.record(on);
    for (int run = 0; run < kRuns; ++run) check(multiply(product_, algorithm, stream_), "cublasLtMatmul");
    end_.record(on);
    copy_rows(on);
    stream_.synchronize();  // a lost peer ends this wait
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin_.event(), end_.event()), "cudaEventElapsedTime");
    return milliseconds;
  }
  std::vector<char> read() const {
    std::vector<char> bytes(room_.rows.bytes());
    std::memcpy(bytes.data(), room_.rows.raw(), bytes.size());
    return bytes;
  }

 private:
  // Copies the first and the last row, and others between them at equal distances.
  void copy_rows(cudaStream_t on) const {
    for (size_t i = 0; i < rows_; ++i) {
      const size_t row = rows_ == 1 ? 0 : i * (product_.rows - 1) / (rows_ - 1);
      check(cudaMemcpyAsync(static_cast<char*>(room_.rows.raw()) + i * product_.row_bytes,
                            static_cast<const char*>(product_.c_data) + row * product_.stride_bytes,
                            product_.row_bytes, cudaMemcpyDefault, on),
            "cudaMemcpyAsync");
    }
  }

  LtProduct product_;
  const Room& room_;
  const size_t rows_;
  Stream& stream_;
  const TimedEvent begin_, end_;
};

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
  const size_t rows =
      std::min(product.rows, std::clamp<size_t>(kMostRowBytes / product.row_bytes, 2, kMostRows));
  const std::optional<Room> room = room_for(product, rows, stream);
  if (!room) return std::nullopt;
  Measurement trial(product, *room, rows, stream);
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

}  // namespace gangway::cuda

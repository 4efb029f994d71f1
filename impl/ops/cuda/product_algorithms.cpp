#include "ops/cuda/product_algorithms.h"

#include <algorithm>
#include <cstring>
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

// The memory of a measurement.
struct Room {
  Tensor result;  // of a product that adds
  Tensor sample;  // on the host
};

std::optional<Room> room_for(const LtProduct& product, const Sample& sample, Stream& stream) {
  const auto bytes = [](size_t count) { return Shape{static_cast<int64_t>(count)}; };
  try {
    Room room;
    if (product.add)
      room.result = Tensor::allocate(stream.device().allocator(), DType::u8,
                                     bytes((product.rows - 1) * product.stride_bytes + product.row_bytes));
    room.sample = Tensor::allocate(stream.device().pinned_allocator(), DType::u8,
                                   bytes(sample.pieces * sample.rows_of_piece * product.row_bytes));
    return room;
  } catch (const Error& error) {
    if (error.code() != Code::out_of_memory) throw;
    return std::nullopt;
  }
}

class Measurement {
 public:
  Measurement(const LtProduct& product, const Room& room, const Sample& sample, Stream& stream)
      : product_(product), room_(room), sample_(sample), stream_(stream) {
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
    copy_sample(on);
    stream_.synchronize();  // a lost peer ends this wait
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin_.event(), end_.event()), "cudaEventElapsedTime");
    return milliseconds;
  }
  std::vector<char> read() const {
    std::vector<char> bytes(room_.sample.bytes());
    std::memcpy(bytes.data(), room_.sample.raw(), bytes.size());
    return bytes;
  }

 private:
  void copy_sample(cudaStream_t on) const {
    const size_t bytes = sample_.rows_of_piece * product_.row_bytes;
    for (size_t i = 0; i < sample_.pieces; ++i)
      check(cudaMemcpyAsync(static_cast<char*>(room_.sample.raw()) + i * bytes,
                            static_cast<const char*>(product_.c_data) +
                                sample_.first_row(i, product_) * product_.stride_bytes,
                            bytes, cudaMemcpyDefault, on),
            "cudaMemcpyAsync");
  }

  LtProduct product_;
  const Room& room_;
  const Sample& sample_;
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
  const Sample sample(product);
  const std::optional<Room> room = room_for(product, sample, stream);
  if (!room) return answers[0];
  Measurement trial(product, *room, sample, stream);
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

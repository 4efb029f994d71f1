#include "device/cuda/segments.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/log.h"

namespace gangway::cuda {
namespace {

constexpr size_t kFewest = 2;  // a graph of one operation saves nothing
constexpr size_t kMost = 64;   // more would make the GPU wait long for the first operation
// The number of segments that are remembered. A training step of 100 layers has about 600.
constexpr size_t kMostSegments = 2048;

// Sets a flag for the lifetime of this object.
class Flag {
 public:
  explicit Flag(bool& flag) : flag_(flag) { flag_ = true; }
  ~Flag() { flag_ = false; }
  Flag(const Flag&) = delete;
  Flag& operator=(const Flag&) = delete;

 private:
  bool& flag_;
};

void check_graph(cudaError_t error, const char* call, size_t operations) {
  if (error == cudaSuccess) return;
  cudaGetLastError();
  fail(error == cudaErrorMemoryAllocation ? Code::out_of_memory : Code::internal, "cuda: ", call, " of ",
       operations, " operations: ", cudaGetErrorName(error), " (", cudaGetErrorString(error),
       "); GANGWAY_CUDA_GRAPHS=0 runs them without graphs");
}

}  // namespace

size_t Segments::Hash::operator()(const SegmentKey& key) const {
  const std::string_view bytes(reinterpret_cast<const char*>(key.data()), key.size() * sizeof(uint64_t));
  return std::hash<std::string_view>()(bytes);
}

Segments::~Segments() {
  forget();
  if (capture_stream_ != nullptr) cudaStreamDestroy(capture_stream_);
}

void Segments::forget() {
  const std::lock_guard lock(mutex_);
  for (auto& [key, segment] : segments_) {
    if (const cudaGraphExec_t graph = std::exchange(segment.graph, nullptr)) cudaGraphExecDestroy(graph);
    segment.refused = false;
  }
}

void Segments::keep(std::span<const uint64_t> key, std::function<void()> run) {
  Operations done;
  const std::lock_guard lock(mutex_);
  // Only this call and push_back may fail, so the two lists never disagree when memory runs out.
  kept_key_.reserve(kept_key_.size() + key.size());
  kept_.push_back(std::move(run));
  kept_key_.insert(kept_key_.end(), key.begin(), key.end());
  if (kept_.size() == kMost) submit(done);
}

// May be called while it already runs: an operation that is being started asks for the stream, and so may the
// release of a block. starting_ ends such a call.
void Segments::submit(Operations& done) {
  const std::lock_guard lock(mutex_);
  if (starting_) return;
  if (failed_ != nullptr) std::rethrow_exception(std::exchange(failed_, nullptr));
  if (kept_.empty()) return;
  const Flag starting(starting_);
  started_.swap(kept_);
  started_key_.swap(kept_key_);
  try {
    const OnDevice on(device_);
    start();
  } catch (...) {
    done.swap(started_);
    started_key_.clear();
    throw;
  }
  done.swap(started_);
  started_key_.clear();
}

void Segments::submit() {
  Operations done;
  submit(done);
}

void Segments::submit_quietly(Operations& done) noexcept {
  const std::lock_guard lock(mutex_);
  try {
    submit(done);
  } catch (...) {
    failed_ = std::current_exception();
  }
}

cudaStream_t Segments::ready() {
  Operations done;
  const std::lock_guard lock(mutex_);
  submit(done);
  return capturing_ ? capture_stream_ : stream_;
}

void Segments::start() {
  if (started_.size() < kFewest) return start_each();
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream_, &status), "cudaStreamIsCapturing");
  // A caller who captures the stream gets the single operations in the capture, not a graph inside of it.
  if (status != cudaStreamCaptureStatusNone) return start_each();
  Segment& segment = found();
  // Only a segment that has run completely may be captured: its workspace has its final size then, and its
  // plans exist.
  if (!segment.seen) {
    start_each();
    segment.seen = true;
    return;
  }
  if (!made_graph(segment)) return start_each();
  check_graph(cudaGraphLaunch(segment.graph, stream_), "cudaGraphLaunch", started_.size());
}

// A capture runs nothing, so after a failure the operations can run as if it had not been tried. An operation
// that fails for another reason than the capture fails again then.
bool Segments::made_graph(Segment& segment) {
  if (segment.graph != nullptr) return true;
  if (segment.refused) return false;
  try {
    segment.graph = capture();
    return true;
  } catch (const Error& error) {
    segment.refused = true;
    if (!std::exchange(told_, true))
      log(LogLevel::warning, text("device cuda:", device_, ": ", started_.size(),
                                  " operations run one by one, "
                                  "because their capture failed: ",
                                  error.message()));
    return false;
  }
}

void Segments::start_each() {
  for (const std::function<void()>& run : started_) run();
}

Segments::Segment& Segments::found() {
  auto at = segments_.find(started_key_);
  if (at == segments_.end()) {
    if (segments_.size() == kMostSegments) drop_older_half();
    at = segments_.emplace(started_key_, Segment()).first;
  }
  at->second.last_use = ++uses_;
  return at->second;
}

// Drops half of the segments at once, so that the cost for each segment that never repeats is small. CUDA
// frees a graph that still runs when its run has ended.
void Segments::drop_older_half() {
  std::vector<uint64_t> uses;
  uses.reserve(segments_.size());
  for (const auto& [key, segment] : segments_) uses.push_back(segment.last_use);
  const auto middle = uses.begin() + static_cast<std::ptrdiff_t>(uses.size() / 2);
  std::nth_element(uses.begin(), middle, uses.end());
  std::erase_if(segments_, [&](auto& known) {
    if (known.second.last_use >= *middle) return false;
    if (known.second.graph != nullptr) cudaGraphExecDestroy(known.second.graph);
    return true;
  });
}

cudaGraphExec_t Segments::capture() {
  if (capture_stream_ == nullptr)
    check(cudaStreamCreateWithPriority(&capture_stream_, cudaStreamNonBlocking, 0),
          "cudaStreamCreateWithPriority");
  const cudaGraph_t graph = captured();
  cudaGraphExec_t executable = nullptr;
  const cudaError_t error = cudaGraphInstantiate(&executable, graph, 0);
  cudaGraphDestroy(graph);
  check_graph(error, "cudaGraphInstantiate", started_.size());
  return executable;
}

// Calls of other threads on other streams do not disturb this capture, with one exception: freeing a block
// queries every stream. hold() keeps that out.
cudaGraph_t Segments::captured() {
  const auto held = memory_.hold();
  const Flag capturing(capturing_);
  check_graph(cudaStreamBeginCapture(capture_stream_, cudaStreamCaptureModeThreadLocal),
              "cudaStreamBeginCapture", started_.size());
  cudaGraph_t graph = nullptr;
  try {
    start_each();
  } catch (...) {  // The caller gets the error of the operation, not that of the broken capture.
    cudaStreamEndCapture(capture_stream_, &graph);
    if (graph != nullptr) cudaGraphDestroy(graph);
    cudaGetLastError();
    throw;
  }
  const cudaError_t error = cudaStreamEndCapture(capture_stream_, &graph);
  if (error != cudaSuccess && graph != nullptr) cudaGraphDestroy(graph);
  check_graph(error, "cudaStreamEndCapture", started_.size());
  return graph;
}

}  // namespace gangway::cuda

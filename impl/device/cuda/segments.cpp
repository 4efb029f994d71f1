#include "device/cuda/segments.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace gangway::cuda {
namespace {

constexpr size_t kFewest = 2;  // a graph of one operation saves nothing
constexpr size_t kMost = 64;   // of a segment: the GPU must not wait long for the first operation
// Segments that are known; the one that was not used for the longest time goes first. A step of 100 layers has about 600.
constexpr size_t kMostSegments = 2048;

// Sets a flag for as long as it lives.
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

size_t Segments::Hash::operator()(const Words& words) const {
  const std::string_view bytes(reinterpret_cast<const char*>(words.data()), words.size() * sizeof(uint64_t));
  return std::hash<std::string_view>()(bytes);
}

Segments::~Segments() { forget(); }

void Segments::forget() {
  for (auto& [words, segment] : segments_)
    if (const cudaGraphExec_t graph = std::exchange(segment.graph, nullptr)) cudaGraphExecDestroy(graph);
}

void Segments::keep(std::span<const uint64_t> words, std::function<void()> run) {
  kept_words_.reserve(kept_words_.size() +
                      words.size());  // where memory is short, neither of the two is kept
  kept_.push_back(std::move(run));
  kept_words_.insert(kept_words_.end(), words.begin(), words.end());
  if (kept_.size() == kMost) submit();
}

// An operation that is being started asks for the stream too, and a block that is given back may come here again.
void Segments::submit() {
  if (starting_ || kept_.empty()) return;
  const Flag starting(starting_);
  started_.swap(kept_);
  started_words_.swap(kept_words_);
  try {
    const OnDevice on(device_);
    start();
  } catch (...) {
    started_.clear();
    started_words_.clear();
    throw;
  }
  started_.clear();
  started_words_.clear();
}

void Segments::start() {
  if (started_.size() < kFewest) return start_each();
  Segment& segment = found();
  if (segment.graph == nullptr) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    check(cudaStreamIsCapturing(stream_, &status), "cudaStreamIsCapturing");
    // A caller who captures his stream gets the operations, not a graph of them.
    if (!std::exchange(segment.seen, true) || status != cudaStreamCaptureStatusNone) return start_each();
    segment.graph = capture();
  }
  check_graph(cudaGraphLaunch(segment.graph, stream_), "cudaGraphLaunch", started_.size());
}

void Segments::start_each() {
  for (const std::function<void()>& run : started_) run();
}

Segments::Segment& Segments::found() {
  auto at = segments_.find(started_words_);
  if (at == segments_.end()) {
    if (segments_.size() == kMostSegments) {
      const auto oldest = std::min_element(
          segments_.begin(), segments_.end(),
          [](const auto& a, const auto& b) { return a.second.last_use < b.second.last_use; });
      // One that still runs is given back when it has ended.
      if (oldest->second.graph != nullptr) cudaGraphExecDestroy(oldest->second.graph);
      segments_.erase(oldest);
    }
    at = segments_.emplace(started_words_, Segment()).first;
  }
  at->second.last_use = ++uses_;
  return at->second;
}

cudaGraphExec_t Segments::capture() {
  const cudaGraph_t graph = captured();
  cudaGraphExec_t executable = nullptr;
  const cudaError_t error = cudaGraphInstantiate(&executable, graph, 0);
  cudaGraphDestroy(graph);
  check_graph(error, "cudaGraphInstantiate", started_.size());
  return executable;
}

// Other threads have streams of their own, and their calls do not matter to this capture; blocks that they free do.
cudaGraph_t Segments::captured() {
  const auto held = memory_.hold();
  const Flag capturing(capturing_);
  check_graph(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture",
              started_.size());
  cudaGraph_t graph = nullptr;
  try {
    start_each();
  } catch (...) {  // the operation's error is the one to tell
    cudaStreamEndCapture(stream_, &graph);
    if (graph != nullptr) cudaGraphDestroy(graph);
    cudaGetLastError();
    throw;
  }
  const cudaError_t error = cudaStreamEndCapture(stream_, &graph);
  if (error != cudaSuccess && graph != nullptr) cudaGraphDestroy(graph);
  check_graph(error, "cudaStreamEndCapture", started_.size());
  return graph;
}

}  // namespace gangway::cuda

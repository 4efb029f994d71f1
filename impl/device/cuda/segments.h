// Queues the operations of a stream and starts them together as CUDA graphs. This header is all that the rest
// of the module knows of graphs: each CudaStream has one Segments, and CudaOps adds operations to it.
// GANGWAY_CUDA_GRAPHS=0 turns graphs off; cuda/README.md says which measurements decide about them.
//
// A segment is the sequence of operations between two other uses of the stream, about one block of a model.
// When the same segment (equal operations, addresses, shapes, strides and numbers) runs for the second time,
// it is captured into a CUDA graph. From then on it is one launch. If the capture fails, the operations of
// the segment run one by one, now and later; the log says so once for each stream.
//
// A graph holds addresses only, no memory. Memory that is freed and allocated again at the same address
// counts as the same argument, because the stream orders both uses. The workspace is not among the arguments,
// so call forget() when it moves.
//
// Thread rule: any thread. The rank's thread adds and starts operations; other threads record events on the
// stream and destroy models.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "device/cuda/calls.h"
#include "device/cuda/memory.h"

namespace gangway::cuda {

// One or more operations with all their arguments, as numbers. Equal keys mean that the same kernels run on
// the same addresses. No key of an operation is a prefix of another one's, so the key of a segment is the
// concatenation of the keys of its operations.
using SegmentKey = std::vector<uint64_t>;

class Segments {
 public:
  using Operations = std::vector<std::function<void()>>;

  Segments(Memory& memory, int device, cudaStream_t stream)
      : memory_(memory), device_(device), stream_(stream) {}
  ~Segments();
  Segments(const Segments&) = delete;
  Segments& operator=(const Segments&) = delete;

  // Queues one operation. `run` launches it on the stream; it owns references to the operation's memory and
  // allocates none.
  void keep(std::span<const uint64_t> key, std::function<void()> run);
  // Starts the queued operations, in order. Throws the error of an operation or a graph, and drops the rest.
  // `done` receives the started operations. Destroy it while no lock is held: it may release the last
  // reference to a caller's memory, and that runs the caller's code.
  void submit(Operations& done);
  void submit();
  // For callers that cannot report a failure: the next submit() throws it.
  void submit_quietly(Operations& done) noexcept;
  // Starts the queued operations and returns the stream. Inside of a capture it returns the capturing stream.
  cudaStream_t ready();
  // Destroys all graphs. A segment is captured again when it runs again.
  void forget();
  bool capturing() const { return capturing_; }

 private:
  struct Segment {
    cudaGraphExec_t graph = nullptr;  // null: not captured
    bool seen = false;                // it has run once, operation by operation
    bool refused = false;             // its capture has failed
    uint64_t last_use = 0;
  };
  struct Hash {
    size_t operator()(const SegmentKey& key) const;
  };

  void start();
  void start_each();
  void drop_older_half();
  Segment& found();
  bool made_graph(Segment& segment);
  cudaGraphExec_t capture();
  cudaGraph_t captured();

  Memory& memory_;
  const int device_;
  const cudaStream_t stream_;
  // Captures use a stream of their own, so that work which other threads put on stream_ meanwhile is not
  // captured.
  cudaStream_t capture_stream_ = nullptr;
  std::recursive_mutex mutex_;
  Operations kept_, started_;
  SegmentKey kept_key_, started_key_;
  std::unordered_map<SegmentKey, Segment, Hash> segments_;  // compares whole keys, not only hashes
  uint64_t uses_ = 0;
  bool starting_ = false, capturing_ = false;
  bool told_ = false;          // the log has a failed capture of this stream
  std::exception_ptr failed_;  // the failure of submit_quietly, for the next submit
};

}  // namespace gangway::cuda

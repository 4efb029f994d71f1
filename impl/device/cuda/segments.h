// Operations that a stream keeps back to start them together as CUDA graphs. This header is all that the rest
// of the module knows of graphs: a CudaStream has one Segments, and CudaOps puts its operations there.
// GANGWAY_CUDA_GRAPHS=0 turns graphs off; cuda/README.md says what decides about them.
//
// A segment is a run of operations between two other uses of the stream, about a layer's block. The second
// time that a segment comes with the same contents (operations, addresses, shapes, strides, numbers) it is
// captured into a CUDA graph; from then on it is one launch.
//
// A graph holds addresses only. Memory that is freed and taken again at the same address is the same
// argument: the stream orders both uses. The workspace is the exception, because no segment names it: call
// forget() when it moves.
//
// Thread rule: any thread. A rank's thread keeps and starts operations; others record events on the stream
// and let go of models.
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

// Operations with all their arguments, as numbers. Equal keys mean that the same kernels run on the same
// addresses. No operation's key is the beginning of another's, so a segment's key is those of its operations
// one after the other.
using SegmentKey = std::vector<uint64_t>;

class Segments {
 public:
  using Operations = std::vector<std::function<void()>>;

  Segments(Memory& memory, int device, cudaStream_t stream)
      : memory_(memory), device_(device), stream_(stream) {}
  ~Segments();
  Segments(const Segments&) = delete;
  Segments& operator=(const Segments&) = delete;

  // `key` is the operation's. `run` puts the operation on the stream; it holds the operation's memory and
  // takes none.
  void keep(std::span<const uint64_t> key, std::function<void()> run);
  // Starts what is kept, in order. Throws what an operation or a graph fails with; the rest is dropped then.
  // `done`: what was started, to be let go when no lock is held, because memory that is given back may run a
  // caller's code.
  void submit(Operations& done);
  void submit();
  // For one who cannot tell of a failure: the next submit() throws it.
  void submit_quietly(Operations& done) noexcept;
  // The stream after what is kept; for an operation that is captured, the stream that captures.
  cudaStream_t ready();
  // The graphs so far are of no use any more. Segments are captured again when they come again.
  void forget();
  bool capturing() const { return capturing_; }

 private:
  struct Segment {
    cudaGraphExec_t graph = nullptr;  // null: not captured
    bool seen = false;
    uint64_t last_use = 0;
  };
  struct Hash {
    size_t operator()(const SegmentKey& key) const;
  };

  void start();
  void start_each();
  void drop_older_half();
  Segment& found();
  cudaGraphExec_t capture();
  cudaGraph_t captured();

  Memory& memory_;
  const int device_;
  const cudaStream_t stream_;
  // A capture has a stream of its own: what other threads put on stream_ meanwhile is no part of it.
  cudaStream_t capture_stream_ = nullptr;
  std::recursive_mutex mutex_;
  Operations kept_, started_;
  SegmentKey kept_key_, started_key_;
  std::unordered_map<SegmentKey, Segment, Hash> segments_;  // the whole key is compared, not its hash alone
  uint64_t uses_ = 0;
  bool starting_ = false, capturing_ = false;
  std::exception_ptr failed_;  // of submit_quietly
};

}  // namespace gangway::cuda

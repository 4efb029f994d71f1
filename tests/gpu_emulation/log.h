// The log has what was put on the streams, as plain data in the order of the host's calls. In the modelled
// mode, work on much data is logged but not done.
//
// Modelled mode (Settings::modelled): kernels of more than kThreadsDone threads do not run, and neither do
// products, copies and collectives of more than kBytesDone bytes. Memory takes no room until something
// touches it, and it reads as zeros, not as NaN. So models of any size can run steps. Small work, on whose
// results the host's decisions depend (ids, labels, sums of the step), is done as usual. Set the mode before
// the first device is used.
//
// Thread rule: any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>

namespace gpu_emulation {

enum class Work : uint8_t { kernel, product, copy, set, collective, record, wait, host_wait };

// The work of a kernel: of the whole launch, or of each block.
struct Cost {
  const char* kernel = nullptr;
  double flops = 0, bytes = 0;
  bool of_block = false;
};

struct Entry {
  Work work = Work::kernel;
  int device = 0;
  // The number of the stream, in the order in which streams were made. 0 for a host's wait for an event.
  uint64_t stream = 0;
  std::string name;  // of the kernel, the call, or the collective
  dim3 grid = {};
  uint64_t m = 0, n = 0, k = 0;  // of a product
  size_t answer = 0;             // of a product: the index of its algorithm (blas.h)
  double flops = 0, bytes = 0;   // bytes: read and written; for a collective those of its whole tensors
  bool costed = true;            // false: the flops and bytes of the kernel are not known
  // The number of the record. For wait and host_wait that of the awaited record; 0 means the whole stream.
  uint64_t event = 0;
  uint64_t communicator = 0, launch = 0;  // of a collective; the same on all ranks
  int ranks = 0;
};

// Starts an empty log.
void start_log();
// Ends the log and returns it.
std::vector<Entry> take_log();

// Sets the costs of the kernels that this thread launches, by name, until the next call. The cost of a whole
// launch counts for the first launch of that name; later launches cost nothing, because they only finish its
// work.
void expect_costs(std::vector<Cost> costs);

// The functions below are for the parts of the software GPU.

constexpr uint64_t kThreadsDone = 8192, kBytesDone = 64 * 1024;

bool modelled();
// Returns whether work on `bytes` bytes is left out.
bool leaves_out(size_t bytes);
// Returns a new number for a record of an event. It is never 0.
uint64_t next_event();
void log_kernel(cudaStream_t stream, const std::string& name, dim3 grid);
void log(cudaStream_t stream, Entry entry);  // sets device and stream
void log_host_wait(int device, cudaStream_t stream, uint64_t event);

}  // namespace gpu_emulation

// What was put on the streams, as plain data in the order of the host's calls, and the modelled mode, in which work on much
// data is logged and not done.
//
// Modelled (Settings::modelled): kernels of more than kThreadsDone threads, products, copies and collectives of more than
// kBytesDone bytes do not run; memory is addresses alone until something touches it, and reads as zeros, not as NaN. So a
// model of any size goes through its steps: what is small, by which the host decides (ids, labels, sums of the step), is
// computed as ever.
// It is set before the first device is used.
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

// What a kernel has to do: of the whole launch, or of each block.
struct Cost {
  const char* kernel = nullptr;
  double flops = 0, bytes = 0;
  bool of_block = false;
};

struct Entry {
  Work work = Work::kernel;
  int device = 0;
  uint64_t stream =
      0;  // on its device, by the order in which they were made; none for a host's wait for an event
  std::string name;  // of the kernel, the call, or the collective
  dim3 grid = {};
  uint64_t m = 0, n = 0, k = 0;  // of a product
  double flops = 0, bytes = 0;   // bytes: read and written; of a collective, those of its whole tensors
  bool costed = true;            // false: the flops and bytes of the kernel are not known
  uint64_t event = 0;  // number of the record; wait and host_wait: of what they wait for, 0: the whole stream
  uint64_t communicator = 0, launch = 0;  // of a collective; the same on all ranks
  int ranks = 0;
};

// From now on; what was logged before is forgotten.
void start_log();
std::vector<Entry> take_log();  // ends it

// What the kernels that this thread launches cost, by name, until the next call. A cost of the whole launch is for the
// first launch of its name; later ones only finish its work.
void expect_costs(std::vector<Cost> costs);

// --- for the parts of the software GPU

constexpr uint64_t kThreadsDone = 8192, kBytesDone = 64 * 1024;

bool modelled();
// Whether work on so many bytes is left out.
bool leaves_out(size_t bytes);
// A number of its own for each record of an event; never 0.
uint64_t next_event();
void log_kernel(cudaStream_t stream, const std::string& name, dim3 grid);
void log(cudaStream_t stream, Entry entry);  // fills in device and stream
void log_host_wait(int device, cudaStream_t stream, uint64_t event);

}  // namespace gpu_emulation

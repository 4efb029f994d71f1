#include "gpu_emulation/log.h"

#include <atomic>
#include <mutex>
#include <utility>

#include "gpu_emulation/state.h"

namespace gpu_emulation {
namespace {

struct Log {
  std::mutex mutex;
  std::atomic<bool> on = false;
  std::vector<Entry> entries;
};
Log& the_log() {
  static auto* const log = new Log;  // never destroyed, because threads of streams outlive all other objects
  return *log;
}

thread_local std::vector<Cost> expected;

void keep(Entry entry) {
  const std::lock_guard lock(the_log().mutex);
  if (the_log().on) the_log().entries.push_back(std::move(entry));
}

}  // namespace

void start_log() {
  const std::lock_guard lock(the_log().mutex);
  the_log().entries.clear();
  the_log().on = true;
}
std::vector<Entry> take_log() {
  const std::lock_guard lock(the_log().mutex);
  the_log().on = false;
  return std::exchange(the_log().entries, {});
}

void expect_costs(std::vector<Cost> costs) { expected = std::move(costs); }

bool modelled() { return settings().modelled; }
bool leaves_out(size_t bytes) { return bytes > kBytesDone && modelled(); }

uint64_t next_event() {
  static std::atomic<uint64_t> last = 0;
  return ++last;
}

void log_kernel(cudaStream_t stream, const std::string& name, dim3 grid) {
  Entry entry;
  entry.name = name;
  entry.grid = grid;
  entry.costed = false;
  for (Cost& cost : expected) {
    if (name != cost.kernel) continue;
    const double times = cost.of_block ? static_cast<double>(grid.x) * grid.y * grid.z : 1;
    entry.flops = times * cost.flops;
    entry.bytes = times * cost.bytes;
    entry.costed = true;
    if (!cost.of_block) cost.flops = cost.bytes = 0;
  }
  log(stream, std::move(entry));
}

void log(cudaStream_t handle, Entry entry) {
  const cudaStream_t stream = the_log().on ? stream_behind(handle) : nullptr;
  if (stream == nullptr) return;
  entry.device = stream->queue->device();
  entry.stream = stream->number;
  keep(std::move(entry));
}

void log_host_wait(int device, cudaStream_t stream, uint64_t event) {
  if (!the_log().on) return;
  Entry entry;
  entry.work = Work::host_wait;
  entry.name = stream != nullptr ? "cudaStreamSynchronize" : "cudaEventSynchronize";
  entry.device = device;
  if (stream != nullptr) entry.stream = stream->number;
  entry.event = event;
  keep(std::move(entry));
}

}  // namespace gpu_emulation

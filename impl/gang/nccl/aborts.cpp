#include "gang/nccl/aborts.h"

#include <chrono>
#include <condition_variable>
#include <iterator>
#include <mutex>
#include <thread>
#include <utility>

#include "gang/nccl/api.h"

namespace gangway::nccl {
namespace {

// The state that the threads share. It is never destroyed, because a thread that waits for a device may
// outlive main().
struct Aborts {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<ncclComm_t> collected;
  int running = 0;  // threads
};
Aborts& aborts() {
  static auto* const all = new Aborts;
  return *all;
}

void abort_group(const std::vector<ncclComm_t>& comms) {
  if (comms.empty()) return;
  api().group_start();
  for (const ncclComm_t comm : comms) api().abort(comm);
  api().group_end();
}

// Each call of abort_soon() starts a thread, because an earlier thread may be waiting in NCCL for the kernels
// of the communicators that the later call passes.
void run() {
  constexpr std::chrono::milliseconds kCollect{5};
  std::this_thread::sleep_for(kCollect);
  std::unique_lock lock(aborts().mutex);
  const std::vector<ncclComm_t> comms = std::exchange(aborts().collected, {});
  lock.unlock();
  abort_group(comms);
  lock.lock();
  --aborts().running;
  aborts().changed.notify_all();
}

}  // namespace

void abort_soon(const std::vector<ncclComm_t>& comms) noexcept {
  if (comms.empty()) return;
  const std::lock_guard lock(aborts().mutex);
  try {
    aborts().collected.insert(aborts().collected.end(), comms.begin(), comms.end());
    std::thread(run).detach();
    ++aborts().running;  // the thread takes the mutex before it ends
  } catch (...) {        // no memory or no thread
  }
}

bool aborting() noexcept {
  const std::lock_guard lock(aborts().mutex);
  return aborts().running != 0;
}

void wait_for_aborts() noexcept {
  constexpr std::chrono::seconds kPatience{5};
  std::unique_lock lock(aborts().mutex);
  aborts().changed.wait_for(lock, kPatience, [] { return aborts().running == 0; });
}

}  // namespace gangway::nccl

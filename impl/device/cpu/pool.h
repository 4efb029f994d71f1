// The thread pool of one rank. It partitions an index range statically over a fixed number of threads, of
// which the caller is one. With one thread, run() is a plain call. Idle workers spin for a short time, then
// sleep.
//
// oneDNN must run with one thread in each part, since OpenMP beside another pool makes it 4 to 5 times
// slower. So each worker sets its OpenMP thread count to 1 once, and run() does so for the caller's thread
// and restores it.
//
// Thread rule: run() is called by one thread at a time and not from inside a task.
#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>

namespace gangway::cpu {

class Pool {
 public:
  // A number below 1 means 1. Throws OUT_OF_MEMORY if not all threads can be started; the text has both
  // numbers.
  explicit Pool(int threads);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  int threads() const { return threads_; }

  // Calls task(thread, first, last) for each thread's contiguous part of [0, count). The parts' sizes differ
  // by at most one, and empty parts are not called. The partition depends on count, grain and threads()
  // alone. `grain` is the fewest items that are worth a thread. run() rethrows an exception of a task after
  // all tasks have ended.
  template <typename Task>
  void run(size_t count, size_t grain, Task&& task) {
    using T = std::remove_reference_t<Task>;
    run_erased(
        count, grain, const_cast<void*>(static_cast<const void*>(&task)),
        [](void* t, int thread, size_t first, size_t last) { (*static_cast<T*>(t))(thread, first, last); });
  }

 private:
  using Erased = void (*)(void* task, int thread, size_t first, size_t last);
  void end() noexcept;
  void run_erased(size_t count, size_t grain, void* task, Erased call);

  struct State;
  int threads_;
  std::unique_ptr<State> state_;
};

}  // namespace gangway::cpu

// The thread pool of one rank: a static partition of an index range over a fixed number of threads, the caller's among
// them. With one thread it is a plain call. Workers spin a little, then sleep.
//
// Each worker sets its OpenMP thread count to 1 once, and run() does so for the caller's thread and restores it, so
// that oneDNN runs single-threaded per slice (OpenMP beside another pool costs 4 to 5 times).
//
// Thread rule: run() is called by one thread at a time and not from inside a task.
#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>

namespace gangway::cpu {

class Pool {
 public:
  explicit Pool(int threads);  // below 1 is 1; OUT_OF_MEMORY with both numbers when not all can be started
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  int threads() const { return threads_; }

  // task(thread, first, last) for each thread's contiguous part of [0, count); parts differ by at most one and empty
  // parts are not called. The partition depends on count, grain and threads() alone. `grain`: fewest items worth a
  // thread. An exception of a task is rethrown here after all have ended.
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

#include "device/cpu/pool.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "base/error.h"
#include "device/cpu/openmp.h"

namespace gangway::cpu {
namespace {

// About 10 microseconds before a worker sleeps.
constexpr int kSpins = 4000;

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Sets the caller to one OpenMP thread while it works for the pool, and restores the caller's own setting.
class SingleThreadedOpenMp {
 public:
  SingleThreadedOpenMp() : saved_(set_openmp_threads(1)) {}
  ~SingleThreadedOpenMp() {
    if (saved_ > 1) set_openmp_threads(saved_);
  }

 private:
  const int saved_;
};

}  // namespace

struct Pool::State {
  std::vector<std::thread> workers;
  std::mutex mutex;
  std::condition_variable wake;
  std::atomic<uint64_t> round{0};
  std::atomic<int> running{0};
  std::atomic<bool> stop{false};
  // The round's work, written before `round` is advanced.
  void* task = nullptr;
  Erased call = nullptr;
  size_t count = 0;
  int parts = 0;
  std::mutex failure_mutex;
  std::exception_ptr failure;

  void part(int thread) {
    if (thread >= parts) return;
    const size_t p = static_cast<size_t>(parts), t = static_cast<size_t>(thread);
    const size_t first = count / p * t + std::min(count % p, t);
    const size_t last = first + count / p + (t < count % p ? 1 : 0);
    if (first == last) return;
    try {
      call(task, thread, first, last);
    } catch (...) {
      const std::lock_guard lock(failure_mutex);
      if (!failure) failure = std::current_exception();
    }
  }

  void work(int thread) {
    set_openmp_threads(1);
    uint64_t seen = 0;
    for (;;) {
      int spins = 0;
      while (round.load(std::memory_order_acquire) == seen && !stop.load(std::memory_order_acquire)) {
        if (++spins < kSpins) {
          pause();
          continue;
        }
        std::unique_lock lock(mutex);
        wake.wait(lock, [&] { return round.load() != seen || stop.load(); });
      }
      if (stop.load()) return;
      seen = round.load(std::memory_order_acquire);
      part(thread);
      running.fetch_sub(1, std::memory_order_release);
    }
  }
};

Pool::Pool(int threads) : threads_(std::max(1, threads)) {
  if (threads_ == 1) return;
  state_ = std::make_unique<State>();
  try {
    state_->workers.reserve(static_cast<size_t>(threads_ - 1));
    for (int t = 1; t < threads_; ++t) state_->workers.emplace_back([s = state_.get(), t] { s->work(t); });
  } catch (const std::exception& error) {
    const size_t started = state_->workers.size();
    // A std::thread must be joined before it is destroyed.
    end();
    fail(Code::out_of_memory, "the pool started ", started, " of ", threads_ - 1, " threads: ", error.what());
  }
}

Pool::~Pool() { end(); }

void Pool::end() noexcept {
  if (!state_) return;
  {
    const std::lock_guard lock(state_->mutex);
    state_->stop.store(true);
  }
  state_->wake.notify_all();
  for (std::thread& w : state_->workers) w.join();
}

void Pool::run_erased(size_t count, size_t grain, void* task, Erased call) {
  if (count == 0) return;
  const SingleThreadedOpenMp single;
  const size_t useful = std::max<size_t>(1, count / std::max<size_t>(1, grain));
  const int parts = static_cast<int>(std::min<size_t>(static_cast<size_t>(threads_), useful));
  if (parts == 1) {
    call(task, 0, 0, count);
    return;
  }
  State& s = *state_;
  s.task = task;
  s.call = call;
  s.count = count;
  s.parts = parts;
  s.failure = nullptr;
  s.running.store(threads_ - 1, std::memory_order_relaxed);
  {
    const std::lock_guard lock(s.mutex);
    s.round.fetch_add(1, std::memory_order_release);
  }
  s.wake.notify_all();
  s.part(0);
  int spins = 0;
  while (s.running.load(std::memory_order_acquire) != 0) {
    if (++spins < kSpins) {
      pause();
    } else {
      std::this_thread::yield();
    }
  }
  if (s.failure) std::rethrow_exception(s.failure);
}

}  // namespace gangway::cpu

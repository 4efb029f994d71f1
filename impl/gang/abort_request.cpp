#include "gang/abort_request.h"

#include <signal.h>
#include <time.h>

#include <cstring>
#include <mutex>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/fork.h"

namespace gangway {
namespace {

constexpr int kLongestMs = 100;

// Sleeps for a short time, which a signal may end early.
void pause_briefly() noexcept {
  constexpr timespec kPause{0, 100'000};
  nanosleep(&kPause, nullptr);
}

int64_t now_ms() noexcept {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<int64_t>(t.tv_sec) * 1000 + t.tv_nsec / 1'000'000;
}

}  // namespace

void AbortRequest::make(AbortThread& thread, std::shared_ptr<void> owner, Act act,
                        const char* reason) noexcept {
  State none = State::none;
  if (!state_.compare_exchange_strong(none, State::taken)) return;
  owner_ = std::move(owner);
  act_ = act;
  memcpy(reason_.data(), reason, strnlen(reason, reason_.size() - 1));
  AbortThread::Queue& queue = *thread.queue_;
  state_.store(State::asked);
  next_ = queue.last.load();
  while (!queue.last.compare_exchange_weak(next_, this)) {
  }
  queue.bell.fetch_add(1);
  queue.bell.notify_one();
}

void AbortRequest::wait_a_while() const noexcept {
  const int64_t end = now_ms() + kLongestMs;
  while (state_.load() != State::done && now_ms() < end) pause_briefly();
}

void AbortRequest::wait_until_done() const noexcept {
  while (state_.load() != State::done) pause_briefly();
}

void AbortRequest::carry_out() noexcept {
  const std::shared_ptr<void> owner = std::move(owner_);  // its end may be that of this object
  act_(owner.get(), reason_.data());
  state_.store(State::done);
}

std::shared_ptr<AbortThread> AbortThread::shared() {
  // Never destroyed: gangs may end while static objects are destroyed.
  static auto& mutex = *new std::mutex;
  static auto& current = *new std::weak_ptr<AbortThread>;
  const std::lock_guard lock(mutex);
  std::shared_ptr<AbortThread> thread = current.lock();
  if (thread == nullptr) {
    thread = std::make_shared<AbortThread>();
    current = thread;
  }
  return thread;
}

AbortThread::AbortThread() : queue_(std::make_shared<Queue>()) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // a caller's signal handlers never run on this thread
  try {
    thread_ = std::make_unique<std::thread>([queue = queue_] { run(*queue); });
  } catch (const std::system_error& error) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    fail(Code::gang, "no thread for aborts: ", error.what());
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

AbortThread::~AbortThread() {
  if (forked_child()) {  // the thread is the parent's
    static_cast<void>(thread_.release());
    return;
  }
  queue_->stop.store(true);
  queue_->bell.fetch_add(1);
  queue_->bell.notify_one();
  if (thread_->get_id() == std::this_thread::get_id())
    thread_->detach();  // it has released the last gang, and ends after this
  else
    thread_->join();
}

void AbortThread::run(Queue& queue) noexcept {
  while (true) {
    const uint32_t seen = queue.bell.load();
    AbortRequest* first = nullptr;  // requests come off the queue in reverse
    for (AbortRequest* next = queue.last.exchange(nullptr); next != nullptr;)
      first = std::exchange(next, std::exchange(next->next_, first));
    while (first != nullptr) std::exchange(first, first->next_)->carry_out();
    if (queue.stop.load()) return;
    queue.bell.wait(seen);
  }
}

}  // namespace gangway

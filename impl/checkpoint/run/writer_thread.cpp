#include "checkpoint/run/writer_thread.h"

#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <system_error>
#include <utility>

#include "base/fork.h"
#include "base/interrupt.h"
#include "base/refusal.h"

namespace gangway {

struct WriterThread::State {
  std::mutex mutex;
  std::condition_variable changed;
  std::function<void()> job;
  Deadline deadline = Deadline::never();  // of the job
  std::optional<Error> error;             // of the last job
  bool busy = false;                      // a job waits or runs
  bool started = false;                   // the thread was given a job
  bool quits = false;                     // the thread ends without a job
};

namespace {

constexpr int kNice = 10;

constexpr int64_t kGraceMs = 10'000;  // beyond the deadline, which the job checks between system calls

}  // namespace

SignalsBlocked::SignalsBlocked() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before_);
}
SignalsBlocked::~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

WriterThread::WriterThread() : state_(std::make_shared<State>()) {}

WriterThread::~WriterThread() {
  if (!thread_.joinable()) return;
  if (forked_child()) {  // the thread is the parent's
    thread_.detach();
    return;
  }
  std::unique_lock lock(state_->mutex);
  state_->quits = true;
  state_->changed.notify_all();
  const int64_t left_ms = state_->deadline.left_ms(INT32_MAX) + kGraceMs;
  const bool ended =
      state_->changed.wait_for(lock, std::chrono::milliseconds(left_ms), [&] { return !state_->busy; });
  lock.unlock();
  if (ended)
    thread_.join();
  else
    thread_.detach();
}

void WriterThread::prepare() {
  if (thread_.joinable()) return;  // made for a save that was refused
  const SignalsBlocked blocked;
  try {
    thread_ = std::thread([state = state_] { run(*state); });
  } catch (const std::system_error& error) {
    fail(Code::gang, "checkpoint: no thread for the writer: ", error.what());
  }
}

void WriterThread::start(std::function<void()> job, Deadline deadline) {
  const std::lock_guard lock(state_->mutex);
  state_->job = std::move(job);
  state_->deadline = deadline;
  state_->busy = state_->started = true;
  state_->changed.notify_all();
}

void WriterThread::finish() {
  std::unique_lock lock(state_->mutex);
  for (int64_t late_ms = 0; state_->busy;) {
    if (state_->changed.wait_for(lock, std::chrono::milliseconds(50), [&] { return !state_->busy; })) break;
    if (state_->deadline.passed() && (late_ms += 50) > kGraceMs)
      fail(Code::timeout, "checkpoint: the writer has not ended ", kGraceMs,
           " ms after its save's deadline; the file system may hang");
    lock.unlock();
    poll_interrupt();
    lock.lock();
  }
  const std::optional<Error> error = std::exchange(state_->error, std::nullopt);
  const bool ends = std::exchange(state_->started, false);
  lock.unlock();
  if (ends) thread_.join();
  if (error) throw *error;
}

void WriterThread::run(State& state) {
  pthread_setname_np(pthread_self(), "gw-checkpoint");
  setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), kNice);
  std::unique_lock lock(state.mutex);
  state.changed.wait(lock, [&] { return state.quits || state.busy; });
  if (!state.busy) return;
  std::function<void()> job = std::exchange(state.job, nullptr);
  lock.unlock();
  std::optional<Error> error = error_thrown_by(job);
  job = nullptr;  // what it holds is freed before the job counts as ended
  lock.lock();
  state.error = std::move(error);
  state.busy = false;
  state.changed.notify_all();
}

}  // namespace gangway

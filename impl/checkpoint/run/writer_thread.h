// A thread that runs one job at a time beside training, at the lowest priority of the scheduler's usual class
// (nice 19). The idle class would stop the thread altogether while all cores compute.
//
// Thread rule: one thread at a time.
#pragma once

#include <functional>
#include <memory>
#include <thread>

#include "base/deadline.h"

namespace gangway {

class WriterThread {
 public:
  // `tick` runs on the thread every few seconds while there is no job; it may not throw. GANG: the system
  // has no thread left.
  explicit WriterThread(std::function<void()> tick);
  // Waits for the job, until its deadline; a thread that hangs in the system after that is left alone.
  ~WriterThread();
  WriterThread(const WriterThread&) = delete;
  WriterThread& operator=(const WriterThread&) = delete;

  // Starts a job; the one before has been finished.
  void start(std::function<void()> job, Deadline deadline);
  // Waits until there is no job, and throws what the last one threw, once. TIMEOUT: the job does not end
  // within its deadline and a little more. Calls the interrupt hook.
  void finish();

 private:
  struct State;
  static void run(State& state);
  std::shared_ptr<State> state_;  // shared with the thread, which may outlive this object
  std::thread thread_;
};

}  // namespace gangway

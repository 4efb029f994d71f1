// A thread that runs a job beside training, at a lower priority (nice 10). At a much lower one a busy machine
// would stop it nearly altogether, and the next save waits for it. Each job has a thread of its own, because
// gangs expect more calls from a thread that has made one: an idle thread would hide from them that a rank is
// stuck.
//
// Thread rule: one thread at a time.
#pragma once

#include <signal.h>

#include <functional>
#include <memory>
#include <thread>

#include "base/deadline.h"

namespace gangway {

class WriterThread {
 public:
  WriterThread();
  // Waits for the job, until its deadline; a thread that hangs in the system after that is left alone.
  ~WriterThread();
  WriterThread(const WriterThread&) = delete;
  WriterThread& operator=(const WriterThread&) = delete;

  // Makes the thread, so that start cannot fail. The job before has been finished. GANG: the system has no
  // thread left.
  void prepare();
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

// A caller's signal handlers never run on a thread that is started while this object lives.
class SignalsBlocked {
 public:
  SignalsBlocked();
  ~SignalsBlocked();
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace gangway

// An asynchronous collective, or a span of them. It has two ends: the output is ready, and the input may be
// used again.
//
// Thread rule: any thread of the rank may poll or wait. A wait drives all outstanding works of the rank on
// every gang, because there is no progress thread; so two gangs that are used in crossed order cannot
// deadlock.
#pragma once

#include <memory>
#include <optional>

#include "base/deadline.h"
#include "base/error.h"
#include "device/device.h"

namespace gangway {

class Work {
 public:
  virtual ~Work() = default;

  // Drives progress once and never blocks. Returns true if the output is ready or the work has failed.
  virtual bool poll() = 0;
  // The same for the input: returns true if no peer reads it any more or the work has failed.
  virtual bool poll_input() = 0;
  // Blocks until the output is ready; throws the work's error. After `deadline` it throws Error{not_ready},
  // which is harmless. The gang's own deadline is Error{timeout} and breaks the gang. It calls the interrupt
  // hook; an interrupt is harmless here.
  virtual void wait(Deadline deadline) = 0;
  // Blocks until no peer reads the input any more; includes wait().
  virtual void wait_input(Deadline deadline) = 0;
  // Orders later work of `stream` after the output is ready. On a CPU stream it is the same as wait(never).
  virtual void order(Stream& stream) = 0;
  // Orders later work of `stream` after the last read of the input by a peer. On a CPU stream it is the same
  // as wait_input(never).
  virtual void order_input(Stream& stream) = 0;
  virtual std::optional<Error> error() const = 0;
};

using WorkPtr = std::shared_ptr<Work>;

// A work that a stream cannot wait for: to order a stream after it, the host waits.
class WaitedWork : public Work {
 public:
  void order(Stream&) final { wait(Deadline::never()); }
  void order_input(Stream&) final { wait_input(Deadline::never()); }
};

// Such a work whose input is free exactly when its output is ready.
class OneEndWork : public WaitedWork {
 public:
  bool poll_input() final { return poll(); }
  void wait_input(Deadline deadline) final { wait(deadline); }
};

// A work that has ended, for engines that finish in run().
WorkPtr finished_work();

}  // namespace gangway

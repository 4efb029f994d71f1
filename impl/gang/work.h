// An asynchronous collective (or a span of them). Two ends: the output is ready; the input is reusable.
//
// Thread rule: any thread of the rank may poll or wait; a wait drives all outstanding works of the rank on every gang
// (there is no progress thread), so two gangs used in crossed order cannot deadlock.
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

  // Drives progress once, never blocks. True: the output is ready or the work has failed.
  virtual bool poll() = 0;
  // Likewise. True: no peer reads the input any more, or the work has failed.
  virtual bool poll_input() = 0;
  // Blocks until the output is ready; throws the work's error. Past `deadline`: Error{not_ready}, harmless. The gang's
  // own deadline is Error{timeout} and breaks the gang. Asks the interrupt hook (harmless here).
  virtual void wait(Deadline deadline) = 0;
  // Blocks until no peer reads the input any more; implies wait().
  virtual void wait_input(Deadline deadline) = 0;
  // Later work of `stream` comes after the output is ready. On a CPU stream the same as wait(never).
  virtual void order(Stream& stream) = 0;
  // Later work of `stream` comes after no peer reads the input any more. On a CPU stream wait_input(never).
  virtual void order_input(Stream& stream) = 0;
  virtual std::optional<Error> error() const = 0;
};

using WorkPtr = std::shared_ptr<Work>;

// A work that no stream knows of: a stream is ordered after it by a wait of the host.
class WaitedWork : public Work {
 public:
  void order(Stream&) final { wait(Deadline::never()); }
  void order_input(Stream&) final { wait_input(Deadline::never()); }
};

// Such a work whose two ends are one.
class OneEndWork : public WaitedWork {
 public:
  bool poll_input() final { return poll(); }
  void wait_input(Deadline deadline) final { wait(deadline); }
};

// A work that is done, for engines that finish in run().
WorkPtr finished_work();

}  // namespace gangway

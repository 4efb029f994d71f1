// Everything that one rank owns outside its gangs: the device with its pool and streams, and the list of
// works that a blocking wait drives. One per root gang; its gangs and their engines hold it. Ranks may be
// threads, so nothing of this is a global.
// Thread rule: any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/tracer.h"
#include "device/device.h"

namespace gangway {

// Something that makes progress when its rank polls or waits.
class Progressive {
 public:
  virtual ~Progressive() = default;
  virtual bool progress() = 0;    // true: finished, drop it from the list. Never blocks.
  virtual void end() noexcept {}  // it is not driven any more
};

class Work;

// A rank's outstanding works. What is on the list may hold the list, never the rank: its end ends them all.
class Works {
 public:
  void add(std::shared_ptr<Progressive> work);
  // Drives every outstanding work once, in the order they were added. A second thread that finds it busy returns.
  void progress();
  // Lets go of a work that has ended before it was driven again.
  void remove(const Progressive* work) noexcept;
  // Holds `object` until `work` is over at both ends, so that its owner may go without waiting for peers that still read
  // or write it. Without memory for the list it waits.
  void keep(std::shared_ptr<Work> work, std::shared_ptr<void> object) noexcept;
  // Lets go of what was kept long enough; quick when nothing is.
  void settle() {
    if (kept_.load(std::memory_order_relaxed) != 0) progress();
  }
  // Ends all, then lets go of them: the memory of one may be in use by another.
  void end() noexcept;

  size_t size() const;

  // Time that calls of this rank spent blocked in gangs. Engines add each blocking wait; a step reports the difference.
  // The wait ends now.
  void add_wait(int64_t ns) noexcept {
    waited_ns_.fetch_add(ns, std::memory_order_relaxed);
    if (!tracer_.on()) [[likely]]
      return;
    const int64_t now = Tracer::now_ns();
    tracer_.add(TraceRow::wait, "wait", "wait", now - ns, now);
  }
  int64_t waited_ns() const noexcept { return waited_ns_.load(std::memory_order_relaxed); }
  Tracer& tracer() noexcept { return tracer_; }

 private:
  class Kept;

  Tracer tracer_;
  std::atomic<int64_t> waited_ns_ = 0;
  std::atomic<int> kept_ = 0;
  // No lock: what a work lets go of may be the caller's, which may release gangs.
  std::atomic<bool> driven_ = false;
  mutable std::mutex mutex_;  // the list
  std::vector<std::shared_ptr<Progressive>> works_;
};

class Rank {
 public:
  explicit Rank(std::shared_ptr<Device> device);
  ~Rank();
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  Device& device() { return *device_; }
  const std::shared_ptr<Device>& device_ptr() const { return device_; }
  // Of calls whose values the host holds: nothing on the device comes before them.
  Stream& host_stream() { return host_->stream(); }
  const std::shared_ptr<Works>& works() const { return works_; }
  int64_t waited_ns() const noexcept { return works_->waited_ns(); }
  Tracer& tracer() const noexcept { return works_->tracer(); }

 private:
  const std::shared_ptr<Device> device_, host_;
  const std::shared_ptr<Works> works_;
};

}  // namespace gangway

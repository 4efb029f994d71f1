// Everything that one rank owns outside of its gangs: the device with its pool and streams, and the list of
// works that a blocking wait drives. There is one for each root gang; its gangs and their engines hold it.
// Ranks may be threads of one process, so none of this is global.
//
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
  // Never blocks. Returns true if it has finished; the list then drops it.
  virtual bool progress() = 0;
  virtual void end() noexcept {}  // called when the rank ends, after which progress() is not called any more
};

class Work;

// A rank's outstanding works. A work may hold a reference to the list, but never one to the rank, because the
// rank's destructor ends all works.
class Works {
 public:
  void add(std::shared_ptr<Progressive> work);
  // Drives every outstanding work once, in the order in which they were added. If another thread is doing so,
  // it returns at once.
  void progress();
  // Removes a work that ended without a call of progress().
  void remove(const Progressive* work) noexcept;
  // Holds `object` until the work's output is ready and its input is free, so that its owner need not wait
  // for peers that still read or write it. If there is no memory for the list, it waits instead.
  void keep(std::shared_ptr<Work> work, std::shared_ptr<void> object) noexcept;
  // Releases the kept objects whose works have ended. Fast if nothing is kept.
  void settle() {
    if (kept_.load(std::memory_order_relaxed) != 0) progress();
  }
  // Ends all works first and releases them afterwards, because one may use the memory of another.
  void end() noexcept;

  size_t size() const;

  // The time that calls of this rank have spent blocked in gangs. Engines add each blocking wait, at its end;
  // a training step reports the difference.
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
  // A flag instead of a lock, because a released work may belong to the caller and release gangs in turn.
  std::atomic<bool> driven_ = false;
  mutable std::mutex mutex_;  // guards the list
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
  // The stream for calls on host memory, which need not wait for the device.
  Stream& host_stream() { return host_->stream(); }
  const std::shared_ptr<Works>& works() const { return works_; }
  int64_t waited_ns() const noexcept { return works_->waited_ns(); }
  Tracer& tracer() const noexcept { return works_->tracer(); }

 private:
  const std::shared_ptr<Device> device_, host_;
  const std::shared_ptr<Works> works_;
};

}  // namespace gangway

// Everything that one rank owns outside its gangs: the device with its pool and streams, and the list of works that a
// blocking wait drives. One per root gang; children hold it. Ranks may be threads, so nothing of this is a global.
// Thread rule: any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "device/device.h"

namespace gangway {

// Something that makes progress when its rank polls or waits.
class Progressive {
 public:
  virtual ~Progressive() = default;
  virtual bool progress() = 0;  // true: finished, drop it from the list. Never blocks, never throws.
};

class Rank {
 public:
  explicit Rank(std::shared_ptr<Device> device) : device_(std::move(device)) {}

  Device& device() { return *device_; }
  const std::shared_ptr<Device>& device_ptr() const { return device_; }

  void add(std::shared_ptr<Progressive> work);
  // Drives every outstanding work once, in the order they were added. A second thread that finds it busy returns.
  void progress();

  // Time that calls of this rank spent blocked in gangs. Engines add each blocking wait; a step reports the difference.
  void add_wait(int64_t ns) noexcept { waited_ns_.fetch_add(ns, std::memory_order_relaxed); }
  int64_t waited_ns() const noexcept { return waited_ns_.load(std::memory_order_relaxed); }

 private:
  std::shared_ptr<Device> device_;
  std::atomic<int64_t> waited_ns_ = 0;
  std::mutex mutex_;     // the list
  std::mutex driving_;   // one driver at a time
  std::vector<std::shared_ptr<Progressive>> works_;
};

}  // namespace gangway

// The folder of a run on the rank that holds it. A thread renews its lease, also while use() runs, since the
// sync of a large checkpoint may take longer than a lease lasts; that thread makes no call of a gang.
//
// Thread rule: any thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "checkpoint/run/run_folder.h"

namespace gangway {

class HeldFolder {
 public:
  // Holds nothing until try_open() succeeds. `renewal` is the time between two renewals of the lease; it must
  // be a small part of kLeaseSeconds.
  explicit HeldFolder(std::chrono::milliseconds renewal = std::chrono::seconds(10)) : renewal_(renewal) {}
  ~HeldFolder();  // gives the lease back
  HeldFolder(const HeldFolder&) = delete;
  HeldFolder& operator=(const HeldFolder&) = delete;

  // Makes the folder if it is missing, and tries for about half a second to take its lease; false: call it
  // again (Lease::try_take). INVALID_STATE: another job holds the lease and runs. IO. GANG: the system has no
  // thread left.
  bool try_open(const std::string& path, const std::string& job);
  bool is_here() const { return folder_ != nullptr; }
  template <typename Use>
  auto use(Use&& use) {
    const std::lock_guard lock(mutex_);
    return use(*folder_);
  }

 private:
  void renew();

  const std::chrono::milliseconds renewal_;
  std::mutex mutex_;                             // of use()
  std::unique_ptr<RunFolder> opening_, folder_;  // opening_: before it has the lease
  std::mutex end_mutex_;
  std::condition_variable ends_;
  std::thread renewer_;
  bool ending_ = false;
};

}  // namespace gangway

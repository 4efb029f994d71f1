// The folder of a run on the rank that holds it. A thread renews its lease; it makes no call of a gang.
//
// Thread rule: any thread.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "checkpoint/run/run_folder.h"

namespace gangway {

class HeldFolder {
 public:
  HeldFolder() = default;  // of a rank that does not hold it
  ~HeldFolder();           // gives the lease back
  HeldFolder(const HeldFolder&) = delete;
  HeldFolder& operator=(const HeldFolder&) = delete;

  // Takes the lease. INVALID_STATE: another job holds it. IO. GANG: the system has no thread left.
  void open(const std::string& path, const std::string& job);
  bool is_here() const { return folder_ != nullptr; }
  template <typename Use>
  auto use(Use&& use) {
    const std::lock_guard lock(mutex_);
    return use(*folder_);
  }

 private:
  void renew();

  std::mutex mutex_;
  std::condition_variable ends_;
  std::unique_ptr<RunFolder> folder_;
  std::thread renewer_;
  bool ending_ = false;
};

}  // namespace gangway

#include "checkpoint/run/held_folder.h"

#include <pthread.h>

#include <system_error>

#include "base/error.h"
#include "base/fork.h"
#include "base/interrupt.h"
#include "checkpoint/run/writer_thread.h"

namespace gangway {
namespace {

constexpr int kFolderTries = 5;
constexpr std::chrono::milliseconds kPause{100};  // between two of them

}  // namespace

bool HeldFolder::try_open(const std::string& path, const std::string& job) {
  if (opening_ == nullptr) opening_ = std::make_unique<RunFolder>(path);
  for (int tries = kFolderTries; !opening_->try_lease(job); std::this_thread::sleep_for(kPause)) {
    poll_interrupt();
    if (--tries == 0) return false;
  }
  folder_ = std::move(opening_);
  const SignalsBlocked blocked;
  try {
    renewer_ = std::thread([this] { renew(); });
  } catch (const std::system_error& error) {
    fail(Code::gang, "checkpoints: no thread to renew the lease: ", error.what());
  }
  return true;
}

HeldFolder::~HeldFolder() {
  if (!renewer_.joinable()) return;
  if (forked_child()) {  // the thread is the parent's
    renewer_.detach();
    return;
  }
  {
    const std::lock_guard lock(end_mutex_);
    ending_ = true;
  }
  ends_.notify_all();
  renewer_.join();
}

// A commit reports a lease that was lost.
void HeldFolder::renew() {
  pthread_setname_np(pthread_self(), "gw-lease");
  std::unique_lock lock(end_mutex_);
  while (!ends_.wait_for(lock, renewal_, [&] { return ending_; })) {
    try {
      folder_->renew_lease();
    } catch (const std::exception&) {
    }
  }
}

}  // namespace gangway

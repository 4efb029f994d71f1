#include "checkpoint/run/held_folder.h"

#include <pthread.h>

#include <system_error>

#include "base/error.h"
#include "base/fork.h"
#include "checkpoint/run/writer_thread.h"

namespace gangway {

void HeldFolder::open(const std::string& path, const std::string& job) {
  auto folder = std::make_unique<RunFolder>(path);
  folder->take_lease(job);
  folder_ = std::move(folder);
  const SignalsBlocked blocked;
  try {
    renewer_ = std::thread([this] { renew(); });
  } catch (const std::system_error& error) {
    fail(Code::gang, "checkpoints: no thread to renew the lease: ", error.what());
  }
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

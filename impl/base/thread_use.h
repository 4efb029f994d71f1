// Says which thread is in a call on an object that one thread at a time may use.
//
// Thread rule: any thread.
#pragma once

#include <pthread.h>

#include <atomic>

namespace gangway {

class ThreadUse {
 public:
  enum class Claim { taken, had_it, refused };

  // The calling thread gets the object, has it already, or another thread has it.
  Claim claim() noexcept {
    const pthread_t self = pthread_self();
    pthread_t owner = 0;
    if (owner_.compare_exchange_strong(owner, self, std::memory_order_acquire)) return Claim::taken;
    return owner == self ? Claim::had_it : Claim::refused;
  }
  void leave() noexcept { owner_.store(0, std::memory_order_release); }

 private:
  std::atomic<pthread_t> owner_ = 0;  // 0: none
};

}  // namespace gangway

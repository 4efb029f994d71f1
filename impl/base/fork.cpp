#include "base/fork.h"

#include <pthread.h>

#include <atomic>
#include <mutex>

#include "base/error.h"

namespace gangway {
namespace {

std::atomic<bool> in_child{false};

}  // namespace

void arm_fork_guard() {
  static std::once_flag once;
  std::call_once(once, [] {
    const int failed =
        pthread_atfork(nullptr, nullptr, [] { in_child.store(true, std::memory_order_relaxed); });
    if (failed != 0) fail_system(Code::out_of_memory, "pthread_atfork", failed);
  });
}

bool forked_child() noexcept { return in_child.load(std::memory_order_relaxed); }

void check_fork() {
  if (forked_child())
    fail(Code::forked, "this process was forked from one that holds gangs; start ranks anew (fork and exec)");
}

}  // namespace gangway

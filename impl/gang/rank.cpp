#include "gang/rank.h"

#include <utility>

namespace gangway {

void Works::add(std::shared_ptr<Progressive> work) {
  const std::lock_guard lock(mutex_);
  works_.push_back(std::move(work));
}

void Works::progress() {
  if (driven_.exchange(true, std::memory_order_acquire)) return;
  struct Turn {
    std::atomic<bool>& driven;
    ~Turn() { driven.store(false, std::memory_order_release); }
  } const turn{driven_};
  for (size_t i = 0;;) {
    std::shared_ptr<Progressive> work;  // let go of without the mutex
    {
      const std::lock_guard lock(mutex_);
      if (i >= works_.size()) return;
      work = works_[i];
    }
    if (!work->progress()) {
      ++i;
      continue;
    }
    // Others only append while this thread drives, but for end().
    const std::lock_guard lock(mutex_);
    if (i < works_.size() && works_[i] == work) works_.erase(works_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

void Works::end() noexcept {
  std::vector<std::shared_ptr<Progressive>> works;
  {
    const std::lock_guard lock(mutex_);
    works.swap(works_);
  }
  for (const auto& work : works) work->end();
}

}  // namespace gangway

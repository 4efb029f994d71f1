#include "gang/rank.h"

#include <utility>

namespace gangway {

void Works::add(std::shared_ptr<Progressive> work) {
  const std::lock_guard lock(mutex_);
  works_.push_back(std::move(work));
}

size_t Works::size() const {
  const std::lock_guard lock(mutex_);
  return works_.size();
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
    // Others append, and take away what is over.
    const std::lock_guard lock(mutex_);
    if (i < works_.size() && works_[i] == work) works_.erase(works_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

void Works::remove(const Progressive* work) noexcept {
  std::shared_ptr<Progressive> over;  // let go of without the mutex
  const std::lock_guard lock(mutex_);
  for (auto& listed : works_) {
    if (listed.get() != work) continue;
    over = std::move(listed);
    std::erase(works_, nullptr);
    return;
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

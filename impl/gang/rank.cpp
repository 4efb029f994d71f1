#include "gang/rank.h"

#include <utility>

namespace gangway {

void Rank::add(std::shared_ptr<Progressive> work) {
  const std::lock_guard lock(mutex_);
  works_.push_back(std::move(work));
}

void Rank::progress() {
  const std::unique_lock driver(driving_, std::try_to_lock);
  if (!driver.owns_lock()) return;
  // Others only append while we drive, so an index stays good without the lock.
  for (size_t i = 0;;) {
    std::shared_ptr<Progressive> work;
    {
      const std::lock_guard lock(mutex_);
      if (i >= works_.size()) return;
      work = works_[i];
    }
    if (!work->progress()) {
      ++i;
      continue;
    }
    const std::lock_guard lock(mutex_);
    works_.erase(works_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

}  // namespace gangway

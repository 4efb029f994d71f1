#include "device/cuda/watches.h"

namespace gangway::cuda {

void Watches::add(Watch& watch) {
  const std::lock_guard lock(mutex_);
  all_.push_back(&watch);
}
void Watches::remove(Watch& watch) noexcept {
  const std::lock_guard lock(mutex_);
  std::erase(all_, &watch);
}
bool Watches::empty() const {
  const std::lock_guard lock(mutex_);
  return all_.empty();
}

bool Watches::any_lost() {
  const std::lock_guard lock(mutex_);
  for (Watch* const watch : all_)
    if (watch->lost()) return true;
  return false;
}
void Watches::give_up() {
  std::optional<Error> first;
  {
    const std::lock_guard lock(mutex_);
    for (Watch* const watch : all_) {
      const std::optional<Error> error = watch->lost();
      if (!error) continue;
      watch->give_up(*error);
      if (!first) first = error;
    }
  }
  if (first) throw *first;
}

}  // namespace gangway::cuda

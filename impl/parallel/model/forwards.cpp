#include "parallel/model/forwards.h"

#include <algorithm>

#include "base/error.h"

namespace gangway {

std::shared_ptr<Forwards::Forward> Forwards::begin() {
  return open_.emplace_back(std::make_shared<Forward>());
}

void Forwards::add(Forward& forward, bool sums) {
  if (counts(forward)) return;
  if (!spoilt_ && !any_counts()) summed_ = summed_ || sums;  // what the caller wrote, for instance
  forward.added_ = true;
  forward.emptied_ = emptied_;
}

void Forwards::end(const Forward& forward) {
  summed_ = true;
  std::erase_if(open_, [&](const auto& open) { return open.get() == &forward; });
}

bool Forwards::any_counts() const {
  return std::any_of(open_.begin(), open_.end(), [&](const auto& open) { return counts(*open); });
}

bool Forwards::settle() {
  std::erase_if(open_, [&](const auto& open) {
    if (!open->given_up()) return false;
    left_unsharded_ = true;
    spoilt_ = spoilt_ || counts(*open);
    return true;
  });
  return spoilt_ && !summed_ && !any_counts();
}

void Forwards::gradients_emptied() {
  ++emptied_;
  summed_ = spoilt_ = false;
}

void Forwards::check_sums(const char* call) const {
  if (spoilt_)
    fail(Code::invalid_state, call,
         ": gradients hold a part of a forward that was given up, among those of others; gw_zero_grad comes "
         "first");
  if (any_counts())
    fail(
        Code::invalid_state, call,
        ": gradients hold a part of a forward that awaits its backward; gw_module_backward or gw_frame_reset "
        "comes first");
}

}  // namespace gangway

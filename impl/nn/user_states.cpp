#include "nn/user_states.h"

#include "nn/module.h"

namespace gangway {
namespace {

void release(const UserState& state) {
  if (state.release != nullptr) state.release(state.state, state.context);
}

}  // namespace

void UserStates::set(const Module& owner, UserState state) {
  if (states_.contains(&owner)) {
    release(state);
    fail(Code::invalid_state, owner.kind(),
         ": its state is in the frame already; a module runs once in a frame");
  }
  try {
    states_.emplace(&owner, state);
  } catch (...) {
    release(state);
    throw;
  }
}

void* UserStates::get(const Module& owner) const {
  const auto found = states_.find(&owner);
  return found == states_.end() ? nullptr : found->second.state;
}

void UserStates::move_to(UserStates& to, const Module& owner) noexcept {
  to.clear();
  to.states_.insert(states_.extract(&owner));
}

void UserStates::free(const Module& owner) {
  if (const auto node = states_.extract(&owner)) release(node.mapped());
}

// A module may have been destroyed before its frame, so only its address is used.
void UserStates::clear() {
  while (!states_.empty()) {
    const UserState state = states_.begin()->second;
    states_.erase(states_.begin());
    release(state);
  }
}

}  // namespace gangway

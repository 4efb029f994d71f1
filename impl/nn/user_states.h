// The states of custom modules between the forward and the backward that run in a frame. A state is freed
// once: by free() after the module's last backward half, by clear(), or with the frame.
//
// Thread rule: that of the frame.
#pragma once

#include <map>

namespace gangway {

class Module;

struct UserState {
  void* state = nullptr;
  void (*release)(void* state, void* context) = nullptr;  // null: nothing to free
  void* context = nullptr;
};

class UserStates {
 public:
  UserStates() = default;
  ~UserStates() { clear(); }
  UserStates(const UserStates&) = delete;
  UserStates& operator=(const UserStates&) = delete;

  // INVALID_STATE: the module has a state already, because it ran twice in one frame. `state` is freed.
  void set(const Module& owner, UserState state);
  void* get(const Module& owner) const;  // null: none
  // Frees what `to` holds, and moves the module's state there, if there is one. Needs no memory.
  void move_to(UserStates& to, const Module& owner) noexcept;
  void free(const Module& owner);  // does nothing if there is none
  void clear();

 private:
  std::map<const Module*, UserState> states_;
};

}  // namespace gangway

// What the writer and the reader of state.json share.
//
// Thread rule: pure functions.
#pragma once

#include <string>
#include <string_view>

#include "checkpoint/run/state.h"

namespace gangway {

inline constexpr size_t kUserLimit = 64 << 20;  // bytes of CheckpointState::user

// Returns what is wrong with the values of a state; empty: nothing.
std::string problem_of(const CheckpointState& state);

std::string hex(uint64_t number);  // 16 digits

// Returns the end of state.json, from the last key on, for the text before it.
std::string last_lines(std::string_view before);

// Returns the text of state.json. Throws NotUtf8 (base/json.h).
std::string write_state(const CheckpointState& state);

std::string to_base64(std::string_view bytes);
// Returns whether the text was base64 of 4 characters for every 3 bytes.
bool from_base64(std::string_view text, std::string& bytes);

}  // namespace gangway

// How entries read plain arguments and write plain results. Each refusal names the argument.
#pragma once

#include <gangway/view.h>

#include <cmath>
#include <cstddef>
#include <string>
#include <string_view>

#include "guard.h"
#include "tensor/tensor.h"

namespace gangway::capi {

template <typename T>
T& required(T* pointer, const char* name) {
  if (pointer == nullptr) fail(Code::invalid_argument, name, " is null");
  if constexpr (requires { pointer->thread_use(); }) EntryClaims::add(pointer->thread_use(), name);
  return *pointer;
}

inline std::string text_or(const char* text, const char* fallback) {
  return text != nullptr ? text : fallback;
}

inline double finite(double value, const char* name) {
  if (!std::isfinite(value)) fail(Code::invalid_argument, name, " is ", value, ", not a finite number");
  return value;
}

// Returns the enum of `value`. INVALID_ARGUMENT: it is not 0 to `last`; `field` names it in the message.
template <typename Enum>
Enum enum_of(int32_t value, int32_t last, std::string_view field) {
  if (value < 0 || value > last) fail(Code::invalid_argument, field, " is ", value, ", not 0 to ", last);
  return static_cast<Enum>(value);
}

// Sets an out-parameter to null or zero and returns a reference to it.
template <typename T>
T& out(T* pointer, const char* name) {
  T& place = required(pointer, name);
  place = T{};
  return place;
}

// For results that come as a list into the caller's array: clear_out empties it before anything can fail, and
// check_room compares its length with the number of results before anything runs.
template <typename T>
void clear_out(T* list, size_t capacity, size_t* out_count) {
  for (size_t i = 0; list != nullptr && i < capacity; ++i) list[i] = T{};
  out(out_count, "out_count");
}
template <typename T>
void check_room(T* list, const char* name, size_t count, size_t capacity) {
  if (count > capacity)
    fail(Code::invalid_argument, name, " gets ", count, " results, out_capacity is ", capacity);
  if (count > 0) required(list, name);
}

// Copies text into a caller's buffer. A null buffer asks for the size; a buffer that is too small is
// INVALID_ARGUMENT with both numbers.
void copy_text(const std::string& text, char* buffer, size_t capacity, size_t* out_len);

DType dtype_of(gw_dtype dtype);        // INVALID_ARGUMENT for a type that cannot be moved
DType optional_dtype(gw_dtype dtype);  // GW_DTYPE_NONE gives DType{}
gw_dtype gw_dtype_of(DType dtype) noexcept;

// Returns a tensor that borrows the memory of a view. `name` appears in error messages. Data may be null only
// if there are no elements.
Tensor tensor_of(const gw_view& view, Device& device, const std::string& name, bool output = false);
// Returns a tensor for a view that a call reads. If the stream's device is not the host, host memory is
// copied, and the caller may change it as soon as this returns.
Tensor input_of(const gw_view& view, Stream& stream, const std::string& name);

}  // namespace gangway::capi

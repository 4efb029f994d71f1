// Structs that begin with their size (base.h): the caller's may be shorter or longer than the library's.
#pragma once

#include <cstddef>
#include <cstring>

#include "arguments.h"

namespace gangway::capi {

// No version of any struct is as large, so a larger size means that the struct was never set up.
constexpr size_t kLargestStruct = 1 << 16;
inline void check_struct_size(size_t size, const char* name) {
  if (size < sizeof(size_t) + sizeof(void*) || size > kLargestStruct)
    fail(Code::invalid_argument, name, ".struct_size is ", size, ": call its _init function first");
}

// The library's whole version of a caller's struct: the caller's fields, and defaults for those that it does
// not have.
template <typename T>
T read_struct(const T* given, void (*init)(T*, size_t), const char* name) {
  T whole;
  if (given == nullptr) {
    init(&whole, sizeof whole);
    return whole;
  }
  const size_t size = given->struct_size;
  check_struct_size(size, name);
  if (size < sizeof whole) init(&whole, sizeof whole);
  const char* bytes = reinterpret_cast<const char*>(given);
  for (size_t i = sizeof whole; i < size; ++i)
    if (bytes[i] != 0)
      fail(Code::not_supported, name, " sets a field at byte ", i, ", but this library knows ", sizeof whole,
           " bytes");
  std::memcpy(static_cast<void*>(&whole), bytes, size < sizeof whole ? size : sizeof whole);
  whole.struct_size = sizeof whole;
  if (whole.next != nullptr)
    fail(Code::not_supported, name, ".next holds an extension of kind ", whole.next->kind,
         ", unknown to this library");
  if constexpr (requires { whole.reserved; })  // a later level may give the field a meaning
    if (whole.reserved != 0)
      fail(Code::invalid_argument, name, ".reserved is ", whole.reserved,
           ", not zero: call its _init function first");
  return whole;
}

// Element i of an array of sized structs. All elements have the size of the first one, which is the step.
template <typename T>
T read_element(const T* first, size_t i, void (*init)(T*, size_t), const char* name) {
  const size_t step = first->struct_size;
  const T* element = reinterpret_cast<const T*>(reinterpret_cast<const char*>(first) + i * step);
  if (element->struct_size != step)
    fail(Code::invalid_argument, name, "[", i, "].struct_size is ", element->struct_size, ", that of [0] is ",
         step);
  return read_struct(element, init, name);
}

// An entry checks an out-struct before its work begins; write_struct copies as much as the caller has room
// for.
template <typename T>
void check_out_struct(const T* given, const char* name) {
  check_struct_size(required(given, name).struct_size, name);
}
template <typename T>
void write_struct(T* given, T filled) {
  const size_t size = given->struct_size;
  filled.struct_size = size;
  filled.next = given->next;
  std::memcpy(static_cast<void*>(given), &filled, size < sizeof filled ? size : sizeof filled);
}

// What every gw_x_init does first: zeroes the struct and sets its size. Returns false for null or a size that
// is too small.
template <typename T>
bool start_struct(T* given, size_t size) noexcept {
  if (given == nullptr || size < sizeof(size_t)) return false;
  std::memset(static_cast<void*>(given), 0, size);
  given->struct_size = size;
  return true;
}
// Sets the defaults of the level-0 fields, also in a struct that is shorter than the library's.
template <typename T>
void init_struct(T* given, size_t size, const T& defaults) noexcept {
  if (given != nullptr && size == sizeof defaults) {  // the usual size, which needs no call of memset
    *given = defaults;
    given->struct_size = size;
    return;
  }
  if (!start_struct(given, size)) return;
  const size_t known = size < sizeof defaults ? size : sizeof defaults;
  std::memcpy(static_cast<void*>(given), &defaults, known);
  given->struct_size = size;
}

}  // namespace gangway::capi

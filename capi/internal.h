// The C layer. Belongs here: one thin file a public header, the guard, handles and sized structs. Does not: behaviour; an
// entry reads its arguments, calls one thing of a layer below and hands out what came.
//
// What the .cpp files of the C ABI share: the guard around every entry, handles, sized structs.
//
// Every entry is one call of guarded(): it clears the thread's last error, refuses in a forked child, runs
// the body and turns any exception into a status and a text. Nothing escapes but the end of the thread itself: a callback
// that calls pthread_exit unwinds through the library. A request to cancel the thread waits until the entry returns.
#pragma once

#include <cxxabi.h>
#include <gangway/api.h>
#include <pthread.h>

#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/fork.h"
#include "base/refusal.h"
#include "level.h"
#include "tensor/tensor.h"

namespace gangway::capi {

// --- errors

void clear_error() noexcept;
gw_status set_error(const Error& error) noexcept;
gw_status set_error(Code code,
                    const char* message) noexcept;  // a text that needs no memory where it is short
// Inside a catch block. A refusal that names no component ("PART: ...") gets that of the entry, `call`.
gw_status current_exception_status(const char* call) noexcept;
// Test hook: the next guarded call on this thread throws (1 bad_alloc, 2 std::exception, 3 int). 0: off. A
// program that never arms it pays one load.
void arm_fault(int kind) noexcept;
void throw_armed_fault();
extern std::atomic<bool> fault_was_armed;

// While it lives, a request to cancel this thread waits: most of the library may not be left in its middle.
class CancellationDeferred {
 public:
  CancellationDeferred() noexcept { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~CancellationDeferred() { pthread_setcancelstate(before_, nullptr); }
  CancellationDeferred(const CancellationDeferred&) = delete;
  CancellationDeferred& operator=(const CancellationDeferred&) = delete;

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

// The stream that an entry's work is ordered on. When the entry returns, nothing of its work is kept back any more: what
// the caller puts on the native stream himself comes after it. Entries nest by callbacks.
class EntryStream {
 public:
  EntryStream() noexcept : outer_(std::exchange(now_, nullptr)) {}
  ~EntryStream();  // after an error, too
  EntryStream(const EntryStream&) = delete;
  EntryStream& operator=(const EntryStream&) = delete;
  static void submit() {
    if (now_ != nullptr) std::exchange(now_, nullptr)->submit();
  }
  // The stream of a caller's native one (Device::wrap_stream), as the innermost entry's; an entry has one.
  static Stream& of(Device& device, void* native) { return use(device.wrap_stream(native)); }
  static Stream& use(Stream& stream) { return *(now_ = &stream); }

 private:
  static thread_local constinit Stream* now_;
  Stream* const outer_;
};

template <typename Body>
gw_status guarded(Body&& body, const char* call = __builtin_FUNCTION()) {
  clear_error();
  const CancellationDeferred deferred;
  const EntryStream entry;
  try {
    check_fork();
    if (fault_was_armed.load(std::memory_order_relaxed)) [[unlikely]]
      throw_armed_fault();
    body();
    EntryStream::submit();
    return GW_OK;
  } catch (const abi::__forced_unwind&) {
    throw;
  } catch (...) {
    return current_exception_status(call);
  }
}

// While a callback that returns a status runs on this thread: what it gives gw_error_set. They nest, as
// callbacks do.
class CallbackText {
 public:
  CallbackText() noexcept;
  ~CallbackText();
  CallbackText(const CallbackText&) = delete;
  CallbackText& operator=(const CallbackText&) = delete;
  // Null: no callback runs on this thread.
  static CallbackText* innermost() noexcept;

  std::string text;

 private:
  CallbackText* outer_;
};

// For a callback's status: anything but OK becomes an Error of that code, with what the callback said.
void check_callback(gw_status status, const char* callback, const std::string& owner,
                    const std::string& said);
[[noreturn]] void callback_threw(const char* callback, const std::string& owner);  // inside a catch block

// While a thread ends in a callback, the calls that it was in unwind and give back what they hold. None of them may come
// back to a callback: it could end the thread once more, and that ends the process.
void thread_ends() noexcept;
void check_thread_lives(const char* callback, const std::string& owner);

// Runs a caller's callback. A C++ one may throw: that is an Error too, because peers have to be told.
template <typename Call>
void run_callback(const char* callback, const std::string& owner, Call&& call) {
  check_thread_lives(callback, owner);
  clear_error();  // what an earlier callback of this entry left is not this one's reason
  CallbackText said;
  gw_status status = GW_OK;
  try {
    status = call();
  } catch (const abi::__forced_unwind&) {
    thread_ends();
    throw;
  } catch (...) {
    callback_threw(callback, owner);
  }
  check_callback(status, callback, owner, said.text);
}

// --- arguments

template <typename T>
T& required(T* pointer, const char* name) {
  if (pointer == nullptr) fail(Code::invalid_argument, name, " is null");
  return *pointer;
}

inline std::string text_or(const char* text, const char* fallback) {
  return text != nullptr ? text : fallback;
}

inline double finite(double value, const char* name) {
  if (!std::isfinite(value)) fail(Code::invalid_argument, name, " is ", value, ", not a finite number");
  return value;
}

// Sets an out-parameter to null or zero and returns a reference to it.
template <typename T>
T& out(T* pointer, const char* name) {
  T& place = required(pointer, name);
  place = T{};
  return place;
}

// Results that come as a list into the caller's array: empty before anything can fail ...
template <typename T>
void clear_out(T* list, size_t capacity, size_t* out_count) {
  for (size_t i = 0; list != nullptr && i < capacity; ++i) list[i] = T{};
  out(out_count, "out_count");
}
// ... and room for all of them before anything runs.
template <typename T>
void check_room(T* list, const char* name, size_t count, size_t capacity) {
  if (count > capacity)
    fail(Code::invalid_argument, name, " gets ", count, " results, out_capacity is ", capacity);
  if (count > 0) required(list, name);
}

// A size that no version of any struct has is that of one that was never set up.
constexpr size_t kLargestStruct = 1 << 16;
inline void check_struct_size(size_t size, const char* name) {
  if (size < sizeof(size_t) + sizeof(void*) || size > kLargestStruct)
    fail(Code::invalid_argument, name, ".struct_size is ", size, ": call its _init function first");
}

// The library's whole version of a caller's sized struct: what it has, defaults for the rest.
template <typename T>
T read_struct(const T* given, void (*init)(T*, size_t), const char* name) {
  T whole;
  init(&whole, sizeof whole);
  if (given == nullptr) return whole;
  const size_t size = given->struct_size;
  check_struct_size(size, name);
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
  if constexpr (requires { whole.reserved; })  // a later level may give it a name
    if (whole.reserved != 0)
      fail(Code::invalid_argument, name, ".reserved is ", whole.reserved,
           ", not zero: call its _init function first");
  return whole;
}

// Element i of an array of sized structs (stepped by the first one's size; all equal).
template <typename T>
T read_element(const T* first, size_t i, void (*init)(T*, size_t), const char* name) {
  const size_t step = first->struct_size;
  const T* element = reinterpret_cast<const T*>(reinterpret_cast<const char*>(first) + i * step);
  if (element->struct_size != step)
    fail(Code::invalid_argument, name, "[", i, "].struct_size is ", element->struct_size, ", that of [0] is ",
         step);
  return read_struct(element, init, name);
}

// Checks an out-struct before work begins; write_struct copies what the caller has room for.
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

// What every gw_x_init does: zero, then the size. Null or too small: nothing.
template <typename T>
bool start_struct(T* given, size_t size) noexcept {
  if (given == nullptr || size < sizeof(size_t)) return false;
  std::memset(static_cast<void*>(given), 0, size);
  given->struct_size = size;
  return true;
}
// Sets defaults of level-0 fields in a struct that may be smaller than the library's.
template <typename T>
void init_struct(T* given, size_t size, const T& defaults) noexcept {
  if (!start_struct(given, size)) return;
  const size_t known = size < sizeof defaults ? size : sizeof defaults;
  std::memcpy(static_cast<void*>(given), &defaults, known);
  given->struct_size = size;
}

// Text into a caller's buffer: null asks the size; too small a buffer is INVALID_ARGUMENT with both numbers.
void copy_text(const std::string& text, char* buffer, size_t capacity, size_t* out_len);

DType dtype_of(gw_dtype dtype);        // any word
DType optional_dtype(gw_dtype dtype);  // GW_DTYPE_NONE: DType{}
gw_dtype dtype_word(DType dtype) noexcept;

// A view as a tensor that borrows; `name` in refusals. Null data is allowed for zero elements only.
Tensor tensor_of(const gw_view& view, Device& device, const std::string& name, bool output = false);
// What a call reads. Memory of the host is copied to another device, ordered on the stream: the caller may change it as
// soon as this returns.
Tensor input_of(const gw_view& view, Stream& stream, const std::string& name);

// --- handles

template <typename H>
H* retain(H* handle) noexcept {
  if (handle != nullptr) handle->references.fetch_add(1, std::memory_order_relaxed);
  return handle;
}
// After fork the child leaks on purpose: its copies of locks and threads are not whole.
template <typename H>
void release(H* handle) noexcept {
  if (handle == nullptr || forked_child()) return;
  if (handle->references.fetch_sub(1, std::memory_order_acq_rel) == 1) delete handle;
}

struct Handle {
  std::atomic<int64_t> references{1};
};

// A caller's object with its free function: run exactly once.
class CallerObject {
 public:
  CallerObject() = default;
  CallerObject(void* object, gw_free_fn release) : object_(object), release_(release) {}
  CallerObject(CallerObject&& other) noexcept
      : object_(std::exchange(other.object_, nullptr)), release_(std::exchange(other.release_, nullptr)) {}
  CallerObject& operator=(CallerObject&& other) noexcept {
    std::swap(object_, other.object_);
    std::swap(release_, other.release_);
    return *this;
  }
  ~CallerObject() {
    if (release_ != nullptr) release_(object_);
  }
  void* object() const { return object_; }
  void dismiss() noexcept { release_ = nullptr; }  // somebody else frees it

 private:
  void* object_ = nullptr;
  gw_free_fn release_ = nullptr;
};

// Whether a caller's struct with `user` and `free_user` is one that was set up and reaches them, as each has since level
// 0.0: a caller older than this library has a smaller struct, but the same right to have its object freed.
template <typename T>
bool reaches_object(const T* given) noexcept {
  constexpr size_t kLeast = offsetof(T, free_user) + sizeof(gw_free_fn);
  return given != nullptr && given->struct_size >= kLeast && given->struct_size <= kLargestStruct;
}
template <typename T>
CallerObject object_of(const T* given) noexcept {
  return reaches_object(given) ? CallerObject(given->user, given->free_user) : CallerObject();
}

}  // namespace gangway::capi

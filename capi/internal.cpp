#include "internal.h"

#include "base/line.h"
#include "gang/read_only.h"

namespace gangway::capi {
namespace {

constexpr size_t kFixedText = 256;

// The thread's last error. Storing an Error may run out of memory; `fixed` then holds the text.
struct LastError {
  std::optional<Error> error;
  Code code = Code::ok;
  char fixed[kFixedText] = "";
  std::string line;  // the result of gw_last_error_text
};

thread_local LastError last;
thread_local CallbackText* running = nullptr;
thread_local int armed_fault = 0;
thread_local bool ending = false;  // the thread is ending inside a callback

}  // namespace

void clear_error() noexcept {
  if (last.code == Code::ok) return;
  last.error.reset();
  last.code = Code::ok;
  last.fixed[0] = '\0';
}

gw_status set_error(Code code, const char* message) noexcept {
  last.error.reset();
  last.code = code;
  put_line(last.fixed, sizeof last.fixed, message);
  return static_cast<gw_status>(code);
}

gw_status set_error(const Error& error) noexcept {
  try {
    last.error = error;
    last.code = error.code();
  } catch (...) {
    return set_error(Code::out_of_memory, "out of memory");
  }
  return static_cast<gw_status>(error.code());
}

namespace {

Error named(const Error& error, const char* call) {
  const bool refusal = error.code() == Code::invalid_argument || error.code() == Code::not_supported ||
                       error.code() == Code::invalid_state;
  if (!refusal || error.message().find(": ") != std::string::npos) return error;
  Error named(error.code(), text(call, ": ", error.message()));
  named.gang = error.gang;
  named.op = error.op;
  named.rank = error.rank;
  named.peer = error.peer;
  named.system_error = error.system_error;
  named.path = error.path;
  return named;
}

}  // namespace

gw_status current_exception_status(const char* call) noexcept try {
  try {
    throw;
  } catch (const Error& error) {
    return set_error(named(error, call));
  } catch (const std::bad_alloc&) {
    return set_error(Code::out_of_memory, "the process has no memory left");
  } catch (const std::exception& error) {
    return set_error(Code::internal, error.what());
  } catch (...) {
    return set_error(Code::internal, "an unknown exception was thrown inside the library");
  }
} catch (...) {  // out of memory for the text
  return set_error(Code::out_of_memory, "out of memory");
}

thread_local constinit Stream* EntryStream::now_ = nullptr;

EntryStream::~EntryStream() {
  try {
    submit();
  } catch (...) {  // dropped: the error of the entry itself is reported
  }
  now_ = outer_;
}

std::atomic<bool> fault_was_armed{false};

void arm_fault(int kind) noexcept {
  armed_fault = kind;
  fault_was_armed.store(true, std::memory_order_relaxed);
}

void throw_armed_fault() {
  if (armed_fault == 0) return;
  switch (std::exchange(armed_fault, 0)) {
    case 1: throw std::bad_alloc();
    case 2: throw std::runtime_error("armed fault");
    default: throw 3;
  }
}

CallbackText::CallbackText() noexcept : outer_(std::exchange(running, this)) {}
CallbackText::~CallbackText() { running = outer_; }
CallbackText* CallbackText::innermost() noexcept { return running; }

void check_callback(gw_status status, const char* callback, const std::string& owner,
                    const std::string& said) {
  if (status == GW_OK) return;
  const Code code =
      status > 0 && status <= static_cast<int32_t>(Code::internal) ? static_cast<Code>(status) : Code::caller;
  // A callback that sets no text of its own probably returns the status of a failed library call: the text of
  // that call says more.
  const std::string inner = !said.empty()                              ? ": " + said
                            : last.error && last.error->code() == code ? ": " + last.error->message()
                                                                       : "";
  fail(code, owner, ": its ", callback, " callback returned ", status, " (", gw_status_name(status), ")",
       inner);
}

void thread_ends() noexcept { ending = true; }

void check_thread_lives(const char* callback, const std::string& owner) {
  if (ending)
    fail(Code::aborted, owner, ": its ", callback, " callback is not called: the thread ended in a callback");
}

void callback_threw(const char* callback, const std::string& owner) {
  try {
    throw;
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    fail(Code::out_of_memory, owner, ": its ", callback, " callback had no memory left");
  } catch (const std::exception& error) {
    fail(Code::internal, owner, ": its ", callback, " callback threw: ", error.what());
  } catch (...) {
    fail(Code::internal, owner, ": its ", callback, " callback threw an unknown exception");
  }
}

void copy_text(const std::string& text, char* buffer, size_t capacity, size_t* out_len) {
  if (out_len != nullptr) *out_len = text.size();
  if (buffer == nullptr) {
    required(out_len, "text and out_len");
    return;
  }
  if (capacity < text.size() + 1)
    fail(Code::invalid_argument, "the text has ", text.size(), " bytes and a zero, the buffer ", capacity);
  std::memcpy(buffer, text.c_str(), text.size() + 1);
}

DType dtype_of(gw_dtype dtype) {
  const DType t = static_cast<DType>(dtype);
  if (!is_movable(t)) fail(Code::invalid_argument, "dtype is ", name(t), ", which cannot be moved");
  return t;
}

DType optional_dtype(gw_dtype dtype) { return dtype == GW_DTYPE_NONE ? DType{} : dtype_of(dtype); }

gw_dtype dtype_word(DType dtype) noexcept { return static_cast<gw_dtype>(dtype); }

Tensor tensor_of(const gw_view& view, Device& device, const std::string& name, bool output) {
  if (view.ndim < 0 || view.ndim > kMaxDims)
    fail(Code::invalid_argument, name, " has ndim ", view.ndim, ", not 0 to ", kMaxDims);
  if (view.ndim > 0 && view.shape == nullptr) fail(Code::invalid_argument, name, ".shape is null");
  if (view.device_type != static_cast<int32_t>(device.kind()) && device.kind() != DeviceKind::meta)
    fail(Code::invalid_argument, name, " lies on device type ", view.device_type, ", wanted is ",
         device.name());
  if (device.kind() == DeviceKind::cuda && view.device_id != device.index())
    fail(Code::invalid_argument, name, " lies on cuda:", view.device_id, ", wanted is ", device.name());
  const DType dtype = dtype_of(view.dtype);
  const size_t ndim = static_cast<size_t>(view.ndim);
  const Shape shape(std::span<const int64_t>(view.shape, ndim));
  if (view.data == nullptr && shape.count() != 0)
    fail(Code::invalid_argument, name, " of shape ", shape.text(), " has null data");
  int64_t last = 0;
  if (view.strides != nullptr && shape.count() > 0)
    for (int i = 0; i < shape.rank(); ++i) {
      if (view.strides[i] < 0) fail(Code::invalid_argument, name, ".strides[", i, "] is ", view.strides[i]);
      if (output && view.strides[i] == 0 && shape[i] > 1)
        fail(Code::invalid_argument, name, " is an output with stride 0 on dim ", i, " of ", shape[i]);
      int64_t step = 0;
      if (__builtin_mul_overflow(shape[i] - 1, view.strides[i], &step) ||
          __builtin_add_overflow(last, step, &last) || last >= PTRDIFF_MAX / 16)
        fail(Code::invalid_argument, name, ".strides[", i, "] = ", view.strides[i],
             " leads outside of the address space");
    }
  else if (shape.count() >= PTRDIFF_MAX / 16)
    fail(Code::invalid_argument, name, " of shape ", shape.text(), " is more than an address space holds");
  const size_t count = view.strides != nullptr && shape.count() > 0 ? static_cast<size_t>(last + 1)
                                                                    : static_cast<size_t>(shape.count());
  char* data = view.data != nullptr ? static_cast<char*>(view.data) + view.byte_offset : nullptr;
  // Checked here because a kernel that reads plain host memory makes the device unusable for the whole
  // process.
  if (device.kind() == DeviceKind::cuda && count > 0 && !device.reaches(data))
    fail(Code::invalid_argument, name, " lies on ", device.name(),
         ", it says, but its memory is plain memory of the host or of another device");
  if (output && is_read_only(data, count * item_bytes(dtype)))
    fail(Code::invalid_argument, name, " is an output, but read-only memory that ranks share");
  auto buffer = Buffer::borrow(device, device.memory_kind(), data, count * item_bytes(dtype), nullptr);
  if (view.strides == nullptr) return Tensor(std::move(buffer), 0, dtype, shape);
  return Tensor(std::move(buffer), 0, dtype, shape, std::span<const int64_t>(view.strides, ndim));
}

}  // namespace gangway::capi

using namespace gangway;
using namespace gangway::capi;

struct gw_error : Handle {
  explicit gw_error(Error e) : error(std::move(e)) {}
  Error error;
};

namespace {

void describe_into(const Error& error, gw_error_info* info) {
  gw_error_info filled{};
  filled.code = static_cast<gw_status>(error.code());
  filled.rank = error.rank;
  filled.peer = error.peer;
  filled.system_error = error.system_error;
  filled.message = error.message().c_str();
  filled.gang = error.gang.c_str();
  filled.op = error.op.c_str();
  filled.path = error.path.c_str();
  write_struct(info, filled);
}

}  // namespace

void gw_error_info_init(gw_error_info* info, size_t size) {
  gw_error_info d{};
  d.rank = d.peer = -1;
  d.message = d.gang = d.op = d.path = "";
  init_struct(info, size, d);
}

gw_status gw_last_error(gw_error_info* info) {
  if (info == nullptr || info->struct_size < sizeof(size_t) + sizeof(void*)) return GW_E_INVALID_ARGUMENT;
  if (last.error) {
    describe_into(*last.error, info);
    return GW_OK;
  }
  gw_error_info filled{};
  filled.code = static_cast<gw_status>(last.code);
  filled.rank = filled.peer = -1;
  filled.message = last.fixed;
  filled.gang = filled.op = filled.path = "";
  write_struct(info, filled);
  return GW_OK;
}

const char* gw_last_error_text(void) {
  if (last.code == Code::ok) return "";
  const char* message = last.error ? last.error->message().c_str() : last.fixed;
  try {
    last.line = text(name(last.code), ": ", message);
  } catch (...) {
    return message;  // out of memory for the line
  }
  return last.line.c_str();
}

gw_error* gw_error_take(void) {
  try {
    if (last.error) return new gw_error(*last.error);
    if (last.code != Code::ok) return new gw_error(Error(last.code, last.fixed));
  } catch (...) {
  }
  return nullptr;
}

gw_status gw_error_describe(const gw_error* error, gw_error_info* info) {
  return guarded([&] {
    required(error, "error");
    check_out_struct(info, "info");
    describe_into(error->error, info);
  });
}

gw_error* gw_error_retain(gw_error* error) { return retain(error); }
void gw_error_release(gw_error* error) { release(error); }

gw_status gw_error_set(const char* message) {
  return guarded([&] {
    const char* const text = &required(message, "message");
    CallbackText* callback = CallbackText::innermost();
    if (callback == nullptr)
      fail(Code::invalid_state, "gw_error_set is for callbacks, and none runs on this thread");
    callback->text = text;
  });
}

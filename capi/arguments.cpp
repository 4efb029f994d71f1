#include "arguments.h"

#include <cstring>

#include "gang/read_only.h"

namespace gangway::capi {

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

gw_dtype gw_dtype_of(DType dtype) noexcept { return static_cast<gw_dtype>(dtype); }

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
  // A kernel that reads plain memory of the host fails, and after that the process cannot use the device any
  // more.
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

#include <gangway/view.h>

#include <cstddef>
#include <cstring>

#include "arguments.h"
#include "dlpack.h"
#include "tensor/host_view.h"
#include "tensor_handle.h"

using namespace gangway;
using namespace gangway::capi;

// gw_view has exactly the layout of DLPack's DLTensor.
static_assert(sizeof(gw_view) == 48);
static_assert(offsetof(gw_view, device_type) == offsetof(DLManagedTensorVersioned, dl_tensor.device) -
                                                    offsetof(DLManagedTensorVersioned, dl_tensor));
static_assert(offsetof(gw_view, dtype) == 20 && offsetof(gw_view, shape) == 24 &&
              offsetof(gw_view, byte_offset) == 40);
static_assert(sizeof(DLManagedTensorVersioned) == 80);

namespace gangway::capi {

const std::shared_ptr<Device>& host_device() {
  static const auto* const device = new std::shared_ptr<Device>(make_device("cpu", {0, 1}));
  return *device;
}

gw_view view_of(const Tensor& tensor, int64_t* shape, int64_t* strides) {
  gw_view view{};
  for (int i = 0; i < tensor.rank(); ++i) {
    shape[i] = tensor.dim(i);
    strides[i] = tensor.stride(i);
  }
  view.data = tensor.raw();
  view.device_type = static_cast<int32_t>(tensor.device().kind());
  view.device_id = tensor.device().index();
  view.ndim = tensor.rank();
  view.dtype = gw_dtype_of(tensor.dtype());
  view.shape = shape;
  view.strides = strides;
  return view;
}

Tensor dense_copy(const Tensor& from, const std::shared_ptr<Allocator>& allocator) {
  const Tensor to = Tensor::allocate(allocator, from.dtype(), from.shape());
  if (from.raw() == nullptr) return to;  // no elements, or a meta device
  const size_t item = item_bytes(from.dtype());
  if (from.contiguous()) {
    if (from.count() != 0) std::memcpy(to.raw(), from.raw(), from.bytes());
    return to;
  }
  const int64_t count = from.count();
  char* write = to.data<char>();
  std::array<int64_t, kMaxDims> index{};
  for (int64_t i = 0; i < count; ++i) {
    int64_t offset = 0;
    for (int d = 0; d < from.rank(); ++d) offset += index[static_cast<size_t>(d)] * from.stride(d);
    std::memcpy(write + static_cast<size_t>(i) * item, from.data<char>() + static_cast<size_t>(offset) * item,
                item);
    for (int d = from.rank() - 1; d >= 0 && ++index[static_cast<size_t>(d)] == from.dim(d); --d)
      index[static_cast<size_t>(d)] = 0;
  }
  return to;
}

Tensor input_of(const gw_view& view, Stream& stream, const std::string& name) {
  Device& device = stream.device();
  const bool on_host = is_on_host(device.memory_kind()) || device.kind() == DeviceKind::meta;
  if (on_host || view.device_type != GW_DEVICE_CPU) {
    Tensor t = tensor_of(view, device, name);
    if (t.contiguous()) return t;
    if (on_host) return dense_copy(t, device.allocator());
    fail(Code::invalid_argument, name, " of shape ", t.shape().text(), " is strided; on ", device.name(),
         " it must be row-major");
  }
  // The pinned memory may be freed before the copy has run: its allocator keeps it until then.
  const Tensor staged = dense_copy(tensor_of(view, *host_device(), name), device.pinned_allocator());
  const Tensor t = Tensor::allocate(device.allocator(), staged.dtype(), staged.shape());
  if (t.count() != 0) device.copy(t.raw(), staged.raw(), t.bytes(), stream);
  return t;
}

}  // namespace gangway::capi

gw_tensor::gw_tensor(Tensor t, std::shared_ptr<void> keep_alive)
    : tensor(std::move(t)), keep(std::move(keep_alive)) {
  view_of(tensor, shape.data(), strides.data());
}

gw_view gw_tensor::view() const {
  return view_of(tensor, const_cast<int64_t*>(shape.data()), const_cast<int64_t*>(strides.data()));
}

gw_status gw_view_set(gw_view* view, void* data, const int64_t* shape, int32_t ndim, gw_dtype dtype) {
  return guarded([&] {
    required(view, "view");
    if (ndim < 0 || ndim > kMaxDims) fail(Code::invalid_argument, "ndim is ", ndim, ", not 0 to ", kMaxDims);
    if (ndim > 0) required(shape, "shape");
    dtype_of(dtype);
    *view = gw_view{data, GW_DEVICE_CPU, 0, ndim, dtype, shape, nullptr, 0};
  });
}

gw_status gw_tensor_copy(const gw_view* view, gw_tensor** out_tensor) {
  return guarded([&] {
    gw_tensor*& result = out(out_tensor, "out_tensor");
    const Tensor from = tensor_of(required(view, "view"), *host_device(), "view");
    result = new gw_tensor(dense_copy(from, host_device()->allocator()), nullptr);
  });
}

gw_status gw_tensor_to_host(const gw_tensor* tensor, void* stream, gw_tensor** out_tensor) {
  return guarded([&] {
    gw_tensor*& result = out(out_tensor, "out_tensor");
    const Tensor& from = required(tensor, "tensor").tensor;
    Device& device = from.buffer()->device();
    if (device.kind() == DeviceKind::meta)
      fail(Code::invalid_argument, "tensor of shape ", from.shape().text(),
           " is on the meta device, where it has no values");
    Stream& ordered_on = EntryStream::of(device, stream);
    if (!is_on_host(from.buffer()->kind()) && !from.contiguous())
      fail(Code::invalid_argument, "tensor of shape ", from.shape().text(), " is strided; on ", device.name(),
           " it must be row-major");
    const Tensor read = read_on_host(from, ordered_on);
    result = new gw_tensor(dense_copy(read, host_device()->allocator()), nullptr);
  });
}

gw_status gw_tensor_order(const gw_tensor* tensor, void* stream) {
  return guarded([&] { required(tensor, "tensor").tensor.buffer()->device().order(stream); });
}

gw_status gw_tensor_view(const gw_tensor* tensor, gw_view* out_view) {
  return guarded([&] {
    gw_view& result = out(out_view, "out_view");
    result = required(tensor, "tensor").view();
  });
}

int32_t gw_tensor_is_read_only(const gw_tensor* tensor) {
  if (tensor == nullptr) return -1;
  return tensor->tensor.buffer()->read_only() ? 1 : 0;
}

gw_tensor* gw_tensor_retain(gw_tensor* tensor) { return retain(tensor); }
void gw_tensor_release(gw_tensor* tensor) { release(tensor); }

gw_status gw_tensor_from_dlpack(DLManagedTensorVersioned* managed, gw_tensor** out_tensor) {
  return guarded([&] {
    gw_tensor*& result = out(out_tensor, "out_tensor");
    required(managed, "managed");
    if (managed->version.major != 1)
      fail(Code::not_supported, "DLPack version.major is ", managed->version.major, ", this library reads 1");
    const auto& t = managed->dl_tensor;
    if (t.dtype.lanes != 1) fail(Code::not_supported, "DLPack dtype.lanes is ", t.dtype.lanes, ", not 1");
    gw_view view{t.data,
                 t.device.device_type,
                 t.device.device_id,
                 t.ndim,
                 t.dtype.code | t.dtype.bits << 8 | t.dtype.lanes << 16,
                 t.shape,
                 t.strides,
                 t.byte_offset};
    const Tensor borrowed = tensor_of(view, *host_device(), "the DLPack tensor");
    std::array<int64_t, kMaxDims> strides{};
    for (int i = 0; i < borrowed.rank(); ++i) strides[static_cast<size_t>(i)] = borrowed.stride(i);
    const bool read_only = (managed->flags & kDlpackReadOnly) != 0;
    // The deleter runs once, with the last reference. `managed` is set at the very end, so that the caller
    // keeps the tensor if this function fails.
    struct Owner {
      DLManagedTensorVersioned* managed = nullptr;
      ~Owner() {
        if (managed != nullptr && managed->deleter != nullptr) managed->deleter(managed);
      }
    };
    auto owner = std::make_shared<Owner>();
    auto buffer = Buffer::borrow(*host_device(), MemoryKind::host, borrowed.raw(), borrowed.buffer()->bytes(),
                                 owner, read_only);
    const Tensor kept(std::move(buffer), 0, borrowed.dtype(), borrowed.shape(),
                      std::span<const int64_t>(strides.data(), static_cast<size_t>(borrowed.rank())));
    result = new gw_tensor(kept, nullptr);
    owner->managed = managed;
  });
}

namespace {

// An exported DLPack tensor, with storage for its shape and strides, and a reference to the memory.
struct Export {
  DLManagedTensorVersioned managed{};
  Tensor tensor;
  std::shared_ptr<void> keep;
  std::array<int64_t, kMaxDims> shape{}, strides{};
};

}  // namespace

gw_status gw_tensor_to_dlpack(gw_tensor* tensor, DLManagedTensorVersioned** out_managed) {
  return guarded([&] {
    DLManagedTensorVersioned*& result = out(out_managed, "out_managed");
    const gw_tensor& from = required(tensor, "tensor");
    auto e = std::make_unique<Export>();
    e->tensor = from.tensor;
    e->keep = from.keep;
    const gw_view view = view_of(e->tensor, e->shape.data(), e->strides.data());
    auto& t = e->managed.dl_tensor;
    t.data = view.data;
    t.device = {view.device_type, view.device_id};
    t.ndim = view.ndim;
    t.dtype = {static_cast<uint8_t>(view.dtype & 0xff), static_cast<uint8_t>(view.dtype >> 8 & 0xff),
               static_cast<uint16_t>(view.dtype >> 16 & 0xffff)};
    t.shape = e->shape.data();
    t.strides = e->strides.data();
    e->managed.version = {1, 0};
    e->managed.flags = from.tensor.buffer()->read_only() ? kDlpackReadOnly : 0;
    e->managed.manager_ctx = e.get();
    e->managed.deleter = [](DLManagedTensorVersioned* m) { delete static_cast<Export*>(m->manager_ctx); };
    result = &e.release()->managed;
  });
}

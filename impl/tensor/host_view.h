// The values of a contiguous tensor where the host can read them: in place in memory of the host, else a copy. Where the
// device is not the host it blocks until `stream` has run. Not for meta tensors, which have none.
//
// Thread rule: that of the tensor's device.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "tensor/tensor.h"

namespace gangway {

// The copy is in pinned memory, which stays until the stream has run, also where waiting for it fails.
// Of several tensors of one device, absent ones among them: one wait for all.
inline std::vector<Tensor> read_on_host(std::span<const Tensor> tensors, Stream& stream) {
  std::vector<Tensor> all(tensors.begin(), tensors.end());
  bool waits = false;
  for (Tensor& tensor : all) {
    if (!tensor || tensor.count() == 0 || is_on_host(tensor.device().memory_kind())) continue;
    waits = true;
    if (tensor.on_host()) continue;  // pinned: work of the stream writes there
    Tensor copy = Tensor::allocate(tensor.device().pinned_allocator(), tensor.dtype(), tensor.shape());
    tensor.device().copy(copy.raw(), tensor.raw(), tensor.bytes(), stream);
    tensor = std::move(copy);
  }
  if (waits) stream.synchronize();
  return all;
}
inline Tensor read_on_host(const Tensor& tensor, Stream& stream) {
  return read_on_host(std::span(&tensor, 1), stream)[0];
}

template <typename T>
class HostView {
 public:
  HostView(const Tensor& tensor, Stream& stream) : host_(read_on_host(tensor, stream)) {}
  HostView(const HostView&) = delete;
  HostView& operator=(const HostView&) = delete;

  const T* begin() const { return host_.data<T>(); }
  const T* end() const { return begin() + host_.count(); }
  const T& operator[](size_t i) const { return begin()[i]; }

 private:
  const Tensor host_;
};

}  // namespace gangway

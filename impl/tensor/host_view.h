// The values of a contiguous tensor where the host can read them: in place if they lie in the host's memory,
// otherwise in a copy. If the device is not the host, construction blocks until `stream` has run. Meta
// tensors have no values and must not be passed.
//
// Thread rule: that of the tensor's device.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "tensor/tensor.h"

namespace gangway {

// Makes several tensors of one device readable on the host, with one wait for all. Tensors may be absent.
// Copies lie in pinned memory, which lives until the stream has run, even if waiting for the stream fails.
inline std::vector<Tensor> read_on_host(std::span<const Tensor> tensors, Stream& stream) {
  std::vector<Tensor> all(tensors.begin(), tensors.end());
  bool waits = false;
  for (Tensor& tensor : all) {
    if (!tensor || tensor.count() == 0 || is_on_host(tensor.device().memory_kind())) continue;
    waits = true;
    // No copy, but the wait is needed: work of the stream may write to pinned memory.
    if (tensor.on_host()) continue;
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

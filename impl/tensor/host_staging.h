// Host memory for the values of a contiguous tensor that no stream uses yet. It is the tensor's own memory if
// the host may write there, otherwise pinned memory, which send() copies to the tensor. The host never waits:
// the memory is freed when the copy has run. Meta tensors have no values and must not be passed.
//
// Thread rule: that of the tensor's device.
#pragma once

#include "tensor/tensor.h"

namespace gangway {

class HostStaging {
 public:
  explicit HostStaging(const Tensor& to)
      : to_(to),
        host_(to.on_host() ? to : Tensor::allocate(to.device().pinned_allocator(), to.dtype(), to.shape())) {}

  void* raw() const { return host_.raw(); }
  template <typename T>
  T* data() const {
    return host_.data<T>();
  }
  void send(Stream& stream) const {
    if (!to_.on_host()) to_.device().copy(to_.raw(), host_.raw(), to_.bytes(), stream);
  }

 private:
  const Tensor to_, host_;
};

}  // namespace gangway

// Gives the host access to tensors of any device.
//
// Thread rule: a Device's (device/device.h).
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "support/test_device.h"
#include "tensor/tensor.h"

namespace gangway::test {

// The memory of a tensor from its first to its last element, after all work of the rank's main stream: in
// place if the host may read it, otherwise a copy. write() stores the copy back.
class HostMemory {
 public:
  explicit HostMemory(const Tensor& tensor) : tensor_(tensor), data_(tensor.raw()) {
    if (tensor.count() == 0) return;
    size_t last = 0;
    for (int i = 0; i < tensor.rank(); ++i)
      last += static_cast<size_t>((tensor.dim(i) - 1) * tensor.stride(i));
    // Pinned memory of a device may still be written by its stream.
    if (tensor.on_host()) {
      if (!is_on_host(tensor.device().memory_kind())) tensor.device().stream().synchronize();
      return;
    }
    // The copy is pinned, so that it lives until the copies have run, even if waiting for them fails.
    copy_ = Buffer::allocate(tensor.device().pinned_allocator(), (last + 1) * item_bytes(tensor.dtype()));
    data_ = copy_->data();
    move(data_, tensor.raw());
  }

  template <typename T>
  T* data() const {
    return static_cast<T*>(data_);
  }
  void write() {
    if (copy_ != nullptr) move(tensor_.raw(), data_);
  }

 private:
  void move(void* to, const void* from) {
    Stream& stream = tensor_.device().stream();
    tensor_.device().copy(to, from, copy_->bytes(), stream);
    stream.synchronize();
  }

  const Tensor tensor_;
  void* data_;
  std::shared_ptr<Buffer> copy_;
};

// copy_out returns the elements of a contiguous tensor; copy_in replaces them.
template <typename T>
std::vector<T> copy_out(const Tensor& tensor) {
  const HostMemory host(tensor);
  return {host.data<T>(), host.data<T>() + tensor.count()};
}
template <typename T>
void copy_in(const Tensor& tensor, const std::vector<T>& values) {
  HostMemory host(tensor);
  std::copy(values.begin(), values.end(), host.data<T>());
  host.write();
}

}  // namespace gangway::test

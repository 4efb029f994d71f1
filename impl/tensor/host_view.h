// The values of a small contiguous tensor where the host can read them: in place in memory of the host, else a copy,
// for which it blocks until `stream` has run. Not for meta tensors, which have none.
//
// Thread rule: that of the tensor's device.
#pragma once

#include <vector>

#include "tensor/tensor.h"

namespace gangway {

template <typename T>
class HostView {
 public:
  HostView(const Tensor& tensor, Stream& stream)
      : values_(tensor.data<T>()), count_(static_cast<size_t>(tensor.count())) {
    if (count_ == 0 || tensor.on_host()) return;
    copied_.resize(count_);
    tensor.device().copy(copied_.data(), values_, count_ * sizeof(T), stream);
    stream.synchronize();
    values_ = copied_.data();
  }
  HostView(const HostView&) = delete;
  HostView& operator=(const HostView&) = delete;

  const T* begin() const { return values_; }
  const T* end() const { return values_ + count_; }
  const T& operator[](size_t i) const { return values_[i]; }

 private:
  const T* values_;
  size_t count_;
  std::vector<T> copied_;
};

}  // namespace gangway

// gw_tensor: a Tensor with shape and strides at fixed addresses for borrowed views.
#pragma once

#include <memory>

#include "internal.h"

struct gw_tensor : gangway::capi::Handle {
  gw_tensor(gangway::Tensor t, std::shared_ptr<void> keep);
  gw_view view() const;

  gangway::Tensor tensor;
  std::shared_ptr<void> keep;  // what the tensor's device hangs on
  std::array<int64_t, gangway::kMaxDims> shape{}, strides{};
};

namespace gangway::capi {

// The process's own CPU device, for tensors that belong to no gang. Made on first use.
const std::shared_ptr<Device>& host_device();

// View of a tensor whose shape and strides live in *shape and *strides (room for 8).
gw_view view_of(const Tensor& tensor, int64_t* shape, int64_t* strides);

// The elements row-major in other memory of the host; any strides.
Tensor dense_copy(const Tensor& from, const std::shared_ptr<Allocator>& to);

}  // namespace gangway::capi

// gw_tensor: a Tensor, with its shape and strides at fixed addresses, which borrowed views point to.
//
// Thread rule: any thread; a gw_tensor does not change.
#pragma once

#include <gangway/view.h>

#include <array>
#include <memory>

#include "handles.h"
#include "tensor/tensor.h"

struct gw_tensor : gangway::capi::Handle {
  gw_tensor(gangway::Tensor t, std::shared_ptr<void> keep);
  gw_view view() const;

  gangway::Tensor tensor;
  std::shared_ptr<void> keep;  // keeps the tensor's device alive; null: the tensor does not need it
  std::array<int64_t, gangway::kMaxDims> shape{}, strides{};
};

namespace gangway::capi {

// Returns the process's CPU device for tensors that belong to no gang. Any thread; made on first use.
const std::shared_ptr<Device>& host_device();

// Returns a view of a tensor. Writes its shape and strides to the arrays, of 8 elements each, which the view
// points to.
gw_view view_of(const Tensor& tensor, int64_t* shape, int64_t* strides);

// Copies a host tensor of any strides into new memory, row-major.
Tensor dense_copy(const Tensor& from, const std::shared_ptr<Allocator>& to);

}  // namespace gangway::capi

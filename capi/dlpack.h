// The layout of the exchange structs of DLPack 1.0. The public headers declare only an incomplete
// DLManagedTensorVersioned; users include their own dlpack.h.
//
// Thread rule: values.
#pragma once

#include <cstdint>

struct DLManagedTensorVersioned {
  struct {
    uint32_t major, minor;
  } version;
  void* manager_ctx;
  void (*deleter)(DLManagedTensorVersioned* self);
  uint64_t flags;
  struct {
    void* data;
    struct {
      int32_t device_type, device_id;
    } device;
    int32_t ndim;
    struct {
      uint8_t code, bits;
      uint16_t lanes;
    } dtype;
    int64_t* shape;
    int64_t* strides;
    uint64_t byte_offset;
  } dl_tensor;
};

namespace gangway::capi {
constexpr uint64_t kDlpackReadOnly = 1;
}

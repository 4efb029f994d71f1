/* Tensors in and out: views, which borrow memory, tensors, which are owned handles, and DLPack. */
#ifndef GANGWAY_VIEW_H
#define GANGWAY_VIEW_H

#include <gangway/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef int32_t gw_device_type;
/* The numbers are DLPack's. */
enum gw_device_type_value { GW_DEVICE_INVALID = -1, GW_DEVICE_CPU = 1, GW_DEVICE_CUDA = 2 };

/* A strided view, which is DLPack's DLTensor byte for byte: 48 bytes, and frozen. Shapes are in C order. */
typedef struct gw_view {
  void *data;
  gw_device_type device_type;
  int32_t device_id;
  int32_t ndim;
  gw_dtype dtype;
  const int64_t *shape;
  const int64_t *strides; /* In elements; null means row-major. */
  uint64_t byte_offset;
} gw_view;

/* A tensor that keeps its memory alive. */
typedef struct gw_tensor gw_tensor;
/* DLPack's versioned exchange struct. Programs that use it bring their own dlpack.h. */
struct DLManagedTensorVersioned;

/* Local. Sets *view to a row-major view of `data` on the CPU. The view borrows `shape`. INVALID_ARGUMENT:
 * ndim outside of 0 to 8, a dtype that cannot be moved. */
GW_API gw_status gw_view_set(gw_view *view, void *data, const int64_t *shape, int32_t ndim, gw_dtype dtype);

/* Local. Makes a row-major tensor with a copy of the view's elements. The caller releases *out_tensor.
 * INVALID_ARGUMENT names the view's field. OUT_OF_MEMORY. */
GW_API gw_status gw_tensor_copy(const gw_view *view, gw_tensor **out_tensor);
/* Local. Makes a row-major tensor in memory of the host with a copy of the elements. The caller releases
 * *out_tensor. The call waits for the work on `stream` (null: the device's own stream), which should be that
 * of the call that made the tensor. INVALID_ARGUMENT: null, a strided tensor of another device, a tensor of
 * the meta device. OUT_OF_MEMORY. */
GW_API gw_status gw_tensor_to_host(const gw_tensor *tensor, void *stream, gw_tensor **out_tensor);
/* Local. Orders later work on `stream` after all that the library has put on the tensor's device by now. On a
 * CPU nothing is left to wait for. A null stream is the device's own. The stream may be destroyed at any
 * time; the tensor must live until the stream's work on it is done. INVALID_ARGUMENT: tensor is null, or a
 * stream on a CPU. */
GW_API gw_status gw_tensor_order(const gw_tensor *tensor, void *stream);
/* Local. Gives a view of the tensor, which is borrowed until the release of the tensor. INVALID_ARGUMENT:
 * null. */
GW_API gw_status gw_tensor_view(const gw_tensor *tensor, gw_view *out_view);
/* Local. Returns 1 if the tensor must not be written (a shared region, or a DLPack tensor with the READ_ONLY
 * flag), 0 if it may be, and -1 for null. */
GW_API int32_t gw_tensor_is_read_only(const gw_tensor *tensor);
GW_API gw_tensor *gw_tensor_retain(gw_tensor *tensor);
GW_API void gw_tensor_release(gw_tensor *tensor);

/* Local. Makes a tensor of a DLPack one. If it succeeds, the library owns `managed` and calls its deleter
 * once, on the thread that drops the last reference. The caller releases *out_tensor. NOT_SUPPORTED: a major
 * version other than 1, lanes other than 1. INVALID_ARGUMENT names another field: a device other than the
 * CPU, ndim over 8, null data. */
GW_API gw_status gw_tensor_from_dlpack(struct DLManagedTensorVersioned *managed, gw_tensor **out_tensor);
/* Local. Exports the tensor to DLPack. The caller owns *out_managed: the export holds a reference on the
 * tensor's memory until the caller, or the library that it was handed to, calls its deleter.
 * INVALID_ARGUMENT: null. */
GW_API gw_status gw_tensor_to_dlpack(gw_tensor *tensor, struct DLManagedTensorVersioned **out_managed);

#ifdef __cplusplus
}
#endif
#endif

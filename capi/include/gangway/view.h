/* Tensors in and out: views (borrowed), tensors (owned handles), DLPack. */
#ifndef GANGWAY_VIEW_H
#define GANGWAY_VIEW_H

#include <gangway/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef int32_t gw_device_type;
/* DLPack's numbers. */
enum gw_device_type_value { GW_DEVICE_INVALID = -1, GW_DEVICE_CPU = 1, GW_DEVICE_CUDA = 2 };

/* A strided view: DLTensor byte for byte (48 bytes), frozen. Shapes are in C order. */
typedef struct gw_view {
  void *data;
  gw_device_type device_type;
  int32_t device_id;
  int32_t ndim;
  gw_dtype dtype;
  const int64_t *shape;
  const int64_t *strides; /* in elements; null: row-major */
  uint64_t byte_offset;
} gw_view;

/* A tensor that keeps its memory alive. */
typedef struct gw_tensor gw_tensor;
/* DLPack's versioned exchange struct; bring your own dlpack.h. */
struct DLManagedTensorVersioned;

/* Local. Row-major CPU view of `data`; `shape` is borrowed by the view. INVALID_ARGUMENT: ndim outside of 0
 * to 8, a dtype that cannot be moved. */
GW_API gw_status gw_view_set(gw_view *view, void *data, const int64_t *shape, int32_t ndim, gw_dtype dtype);

/* Local. A new tensor with a copy of the view's elements (row-major); the caller releases *out_tensor.
 * INVALID_ARGUMENT names the view's field; OUT_OF_MEMORY. */
GW_API gw_status gw_tensor_copy(const gw_view *view, gw_tensor **out_tensor);
/* Local. A new tensor with a copy of the elements in memory of the host, row-major; the caller releases *out_tensor. Waits
 * for the work on `stream` (null: the device's own), which should be that of the call that made the tensor.
 * INVALID_ARGUMENT: null, a strided tensor of another device, one of the meta device; OUT_OF_MEMORY. */
GW_API gw_status gw_tensor_to_host(const gw_tensor *tensor, void *stream, gw_tensor **out_tensor);
/* Local. Later work on `stream` comes after all that the library has put on the tensor's device by now; on a CPU nothing is
 * left to wait for. Null is the device's own stream. The stream may go at any time; the tensor must live until the
 * stream's work on it is done. INVALID_ARGUMENT: null tensor, a stream on a CPU. */
GW_API gw_status gw_tensor_order(const gw_tensor *tensor, void *stream);
/* Local. *out_view is borrowed until the release of the tensor. INVALID_ARGUMENT: null. */
GW_API gw_status gw_tensor_view(const gw_tensor *tensor, gw_view *out_view);
/* Local. 1: the tensor must not be written (a shared region, or a DLPack tensor with the READ_ONLY flag); 0: it may
 * be; -1 for null. */
GW_API int32_t gw_tensor_is_read_only(const gw_tensor *tensor);
/* Local, any thread. Takes one more reference and returns its argument; null for null. */
GW_API gw_tensor *gw_tensor_retain(gw_tensor *tensor);
/* Local, any thread, never blocks. Gives one reference back; the last one frees the object. Null is allowed. */
GW_API void gw_tensor_release(gw_tensor *tensor);

/* Local. Takes over `managed` on success and calls its deleter once, on the thread that drops the last
 * reference; the caller releases *out_tensor. NOT_SUPPORTED: a major version other than 1, lanes other than
 * 1. INVALID_ARGUMENT names another field: a device other than the CPU, ndim over 8, null data. */
GW_API gw_status gw_tensor_from_dlpack(struct DLManagedTensorVersioned *managed, gw_tensor **out_tensor);
/* Local. The caller owns *out_managed: the export holds a reference on the tensor's memory until the
 * caller, or the library that it was handed to, calls its deleter. INVALID_ARGUMENT: null. */
GW_API gw_status gw_tensor_to_dlpack(gw_tensor *tensor, struct DLManagedTensorVersioned **out_managed);

#ifdef __cplusplus
}
#endif
#endif

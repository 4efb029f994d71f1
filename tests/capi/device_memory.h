/* What the host reads and writes of a device's memory, in suites that run on CPUs and on GPUs: a copy on the stream, waited
 * for. On a CPU it is one, too, so that both run the same lines. */
#ifndef GANGWAY_TESTS_CAPI_DEVICE_MEMORY_H
#define GANGWAY_TESTS_CAPI_DEVICE_MEMORY_H

#include <dlfcn.h>
#include <sched.h>

#include "testing.h"

/* CUDA's functions, which a program puts work on its own stream with. */
typedef struct cuda_runtime {
  int (*set_device)(int device);
  int (*create_stream)(void** stream, unsigned flags, int priority);
  int (*copy)(void* to, const void* from, size_t bytes, int kind, void* stream);
  int (*query)(void* stream);
  int (*synchronize)(void* stream);
  int (*synchronize_device)(void);
  int (*destroy_stream)(void* stream);
} cuda_runtime;

static MAYBE_UNUSED cuda_runtime open_cuda(void) {
  cuda_runtime cuda = {0};
  void* const library = dlopen("libgpu_emulation.so", RTLD_NOW);
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    abort();
  }
  *(void**)&cuda.set_device = dlsym(library, "cudaSetDevice");
  *(void**)&cuda.create_stream = dlsym(library, "cudaStreamCreateWithPriority");
  *(void**)&cuda.copy = dlsym(library, "cudaMemcpyAsync");
  *(void**)&cuda.query = dlsym(library, "cudaStreamQuery");
  *(void**)&cuda.synchronize = dlsym(library, "cudaStreamSynchronize");
  *(void**)&cuda.synchronize_device = dlsym(library, "cudaDeviceSynchronize");
  *(void**)&cuda.destroy_stream = dlsym(library, "cudaStreamDestroy");
  return cuda;
}

/* Whether the work of a call's stream ended. No: the call's gang broke, and what the stream waits for may never come. */
static MAYBE_UNUSED int ended(const cuda_runtime* cuda, const gw_call* call) {
  gw_gang* root = NULL;
  int broken = 0;
  if (gw_gangs_get(call->gangs, "root", &root) != GW_OK) return 0;
  while (!broken && cuda->query(call->stream) != 0) {
    broken = gw_gang_async_error(root) != GW_OK;
    sched_yield();
  }
  gw_gang_release(root);
  return !broken;
}

/* `call`: of a callback, on whose stream the copy is; null: all work of the device is waited for first. */
static MAYBE_UNUSED void copy_values(void* to, const void* from, size_t bytes, const gw_call* call,
                                     const gw_view* on) {
  if (on->device_type == GW_DEVICE_CPU) {
    memcpy(to, from, bytes);
    return;
  }
  const cuda_runtime cuda = open_cuda();
  void *own = NULL, *stream = NULL;
  int failed = cuda.set_device(on->device_id) != 0;
  if (call == NULL)
    failed |= cuda.synchronize_device() != 0 || cuda.create_stream(&own, /*cudaStreamNonBlocking*/ 1, 0) != 0;
  else if (!ended(&cuda, call))
    return;
  stream = call == NULL ? own : call->stream;
  failed |= cuda.copy(to, from, bytes, /*cudaMemcpyDefault*/ 4, stream) != 0 || cuda.synchronize(stream) != 0;
  if (own != NULL) failed |= cuda.destroy_stream(own) != 0;
  if (failed) {
    fprintf(stderr, "no copy of %zu bytes to or from GPU %d\n", bytes, (int)on->device_id);
    abort();
  }
}

static MAYBE_UNUSED size_t elements_of(const gw_view* view) {
  size_t count = 1;
  for (int32_t d = 0; d < view->ndim; ++d) count *= (size_t)view->shape[d];
  return count;
}
static MAYBE_UNUSED size_t bytes_of(const gw_view* view) {
  return elements_of(view) * gw_dtype_bytes(view->dtype);
}

/* All elements of a row-major view. */
static MAYBE_UNUSED void take(void* to, const gw_view* from, const gw_call* call) {
  copy_values(to, (const char*)from->data + from->byte_offset, bytes_of(from), call, from);
}
static MAYBE_UNUSED void give(const gw_view* to, const void* from, const gw_call* call) {
  copy_values((char*)to->data + to->byte_offset, from, bytes_of(to), call, to);
}

/* Memory of the gang's device for the elements of `view`, which it then shows; to be freed by gw_gang_free. `like`: a view of
 * that device. */
static MAYBE_UNUSED gw_status place_on(gw_gang* gang, const gw_view* like, gw_view* view) {
  view->device_type = like->device_type;
  view->device_id = like->device_id;
  return gw_gang_alloc(gang, bytes_of(view), &view->data);
}

/* From one place of the device to another. */
static MAYBE_UNUSED void pass_on(const gw_view* to, const gw_view* from, const gw_call* call) {
  copy_values((char*)to->data + to->byte_offset, (const char*)from->data + from->byte_offset, bytes_of(from),
              call, from);
}

/* A view of `buffer`, which gets all elements. */
static MAYBE_UNUSED gw_view taken(void* buffer, const gw_view* from) {
  gw_view here = *from;
  take(buffer, from, NULL);
  here.data = buffer;
  here.device_type = GW_DEVICE_CPU;
  here.byte_offset = 0;
  return here;
}

/* One element of f32 or f64. */
static MAYBE_UNUSED double at(const gw_view* view, int64_t i) {
  const size_t bytes = gw_dtype_bytes(view->dtype);
  double wide = 0;
  float narrow = 0;
  copy_values(view->dtype == GW_F64 ? (void*)&wide : &narrow, (const char*)view->data + (size_t)i * bytes,
              bytes, NULL, view);
  return view->dtype == GW_F64 ? wide : (double)narrow;
}
static MAYBE_UNUSED void set_at(const gw_view* view, int64_t i, double value) {
  const size_t bytes = gw_dtype_bytes(view->dtype);
  const float narrow = (float)value;
  copy_values((char*)view->data + (size_t)i * bytes, view->dtype == GW_F64 ? (void*)&value : (void*)&narrow,
              bytes, NULL, view);
}

#endif

/* Lets the host read and write a device's memory, in suites that run on CPUs and on GPUs: it copies on the
 * stream and waits for the copy. A CPU copies as well, so both run the same test code. */
#ifndef GANGWAY_TESTS_CAPI_DEVICE_MEMORY_H
#define GANGWAY_TESTS_CAPI_DEVICE_MEMORY_H

#include <dlfcn.h>
#include <sched.h>

#include "testing.h"

/* The leading fields of cudaPointerAttributes. The rest is room for the fields of any CUDA release. */
typedef struct cuda_attributes {
  int type, device;
  void* rest[14];
} cuda_attributes;

/* The CUDA functions with which a program puts work on a stream of its own. */
typedef struct cuda_runtime {
  int (*set_device)(int device);
  int (*create_stream)(void** stream, unsigned flags, int priority);
  int (*copy)(void* to, const void* from, size_t bytes, int kind, void* stream);
  int (*query)(void* stream);
  int (*synchronize)(void* stream);
  int (*synchronize_device)(void);
  int (*destroy_stream)(void* stream);
  int (*attributes)(cuda_attributes* attributes, const void* data);
} cuda_runtime;

static cuda_runtime opened_cuda;
static void open_cuda(void) {
  void* const library = dlopen("libgpu_emulation.so", RTLD_NOW);
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    abort();
  }
  *(void**)&opened_cuda.set_device = dlsym(library, "cudaSetDevice");
  *(void**)&opened_cuda.create_stream = dlsym(library, "cudaStreamCreateWithPriority");
  *(void**)&opened_cuda.copy = dlsym(library, "cudaMemcpyAsync");
  *(void**)&opened_cuda.query = dlsym(library, "cudaStreamQuery");
  *(void**)&opened_cuda.synchronize = dlsym(library, "cudaStreamSynchronize");
  *(void**)&opened_cuda.synchronize_device = dlsym(library, "cudaDeviceSynchronize");
  *(void**)&opened_cuda.destroy_stream = dlsym(library, "cudaStreamDestroy");
  *(void**)&opened_cuda.attributes = dlsym(library, "cudaPointerGetAttributes");
}
static MAYBE_UNUSED const cuda_runtime* cuda_calls(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, open_cuda);
  return &opened_cuda;
}

/* Waits for the work on a call's stream. Returns 0 if the call's gang broke, because that work may then never
 * end. */
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

/* `call` is the call of a callback, whose stream the copy uses. If it is null, the copy first waits for all
 * work of the device. Returns 0, without a copy, if the call's gang broke. */
static MAYBE_UNUSED int copy_values(void* to, const void* from, size_t bytes, const gw_call* call,
                                    const gw_view* on) {
  if (on->device_type == GW_DEVICE_CPU) {
    if (bytes != 0) memcpy(to, from, bytes);
    return 1;
  }
  const cuda_runtime* const cuda = cuda_calls();
  void *own = NULL, *stream = NULL;
  int failed = cuda->set_device(on->device_id) != 0;
  if (call == NULL)
    failed |=
        cuda->synchronize_device() != 0 || cuda->create_stream(&own, /*cudaStreamNonBlocking*/ 1, 0) != 0;
  else if (!ended(cuda, call))
    return 0;
  stream = call == NULL ? own : call->stream;
  failed |=
      cuda->copy(to, from, bytes, /*cudaMemcpyDefault*/ 4, stream) != 0 || cuda->synchronize(stream) != 0;
  if (own != NULL) failed |= cuda->destroy_stream(own) != 0;
  if (failed) {
    fprintf(stderr, "no copy of %zu bytes to or from GPU %d\n", bytes, (int)on->device_id);
    abort();
  }
  return 1;
}

static MAYBE_UNUSED size_t elements_of(const gw_view* view) {
  size_t count = 1;
  for (int32_t d = 0; d < view->ndim; ++d) count *= (size_t)view->shape[d];
  return count;
}
static MAYBE_UNUSED size_t bytes_of(const gw_view* view) {
  return elements_of(view) * gw_dtype_bytes(view->dtype);
}

/* Reads all elements of a row-major view, or zeros if the gang broke. */
static MAYBE_UNUSED void take(void* to, const gw_view* from, const gw_call* call) {
  if (!copy_values(to, (const char*)from->data + from->byte_offset, bytes_of(from), call, from))
    memset(to, 0, bytes_of(from));
}
static MAYBE_UNUSED void give(const gw_view* to, const void* from, const gw_call* call) {
  copy_values((char*)to->data + to->byte_offset, from, bytes_of(to), call, to);
}

/* Copies bytes of the host into memory of the gang, and back. */
static MAYBE_UNUSED gw_view place_of(gw_gang* gang, const void* data) {
  gw_view place = {.device_type = GW_DEVICE_CPU};
  cuda_attributes found = {0};
  if (!on_gpus(gw_gang_device(gang)) || cuda_calls()->attributes(&found, data) != 0 ||
      found.type != /*cudaMemoryTypeDevice*/ 2)
    return place;
  place.device_type = GW_DEVICE_CUDA;
  place.device_id = found.device;
  return place;
}
static MAYBE_UNUSED void write_bytes(gw_gang* gang, void* to, const void* from, size_t bytes) {
  const gw_view place = place_of(gang, to);
  copy_values(to, from, bytes, NULL, &place);
}
static MAYBE_UNUSED void read_bytes(gw_gang* gang, void* to, const void* from, size_t bytes) {
  const gw_view place = place_of(gang, from);
  copy_values(to, from, bytes, NULL, &place);
}

/* Allocates memory of the gang's device for the elements of `view`, and lets `view` show it. gw_gang_free
 * frees it. `like` is a view of that device. */
static MAYBE_UNUSED gw_status place_on(gw_gang* gang, const gw_view* like, gw_view* view) {
  view->device_type = like->device_type;
  view->device_id = like->device_id;
  return gw_gang_alloc(gang, bytes_of(view), &view->data);
}

/* Copies from one place of the device to another. */
static MAYBE_UNUSED void pass_on(const gw_view* to, const gw_view* from, const gw_call* call) {
  copy_values((char*)to->data + to->byte_offset, (const char*)from->data + from->byte_offset, bytes_of(from),
              call, from);
}

/* A view of `buffer`, into which all elements of `from` are read. */
static MAYBE_UNUSED gw_view taken(void* buffer, const gw_view* from) {
  gw_view here = *from;
  take(buffer, from, NULL);
  here.data = buffer;
  here.device_type = GW_DEVICE_CPU;
  here.byte_offset = 0;
  return here;
}

/* Reads one element of an f32 or f64 view. */
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

/* The C side of ratio.py: the same calls on the same gang, in a loop without an interpreter. */
#include <gangway/gangway.h>
#include <stdlib.h>
#include <time.h>

enum { kElements = 16 };

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Seconds of one call. */
double loop_rank(const gw_gang* gang, int count) {
  volatile int32_t sum = 0;
  const double start = now();
  for (int i = 0; i < count; ++i) sum += gw_gang_rank(gang);
  return (now() - start) / count;
}

/* Seconds of one call; below 0: a call failed. */
double loop_all_reduce(gw_gang* gang, void* data, size_t elements, int count) {
  const double start = now();
  for (int i = 0; i < count; ++i)
    if (gw_gang_all_reduce(gang, data, data, elements, GW_F32, GW_MAX, NULL) != GW_OK) return -1;
  return (now() - start) / count;
}

static gw_status shapes(void* user, gw_call* call) {
  (void)user;
  gw_view* y = &call->outputs[0];
  y->ndim = 1;
  y->dtype = GW_F32;
  ((int64_t*)y->shape)[0] = kElements;
  return GW_OK;
}

static gw_status twice(const gw_view* from, const gw_view* to) {
  for (int i = 0; i < kElements; ++i) ((float*)to->data)[i] = 2 * ((const float*)from->data)[i];
  return GW_OK;
}

static gw_status forward(void* user, gw_call* call) {
  (void)user;
  return twice(&call->inputs[0], &call->outputs[0]);
}

static gw_status backward_input(void* user, gw_call* call) {
  (void)user;
  return twice(&call->output_grads[0], &call->input_grads[0]);
}

static gw_module* make(void) {
  gw_custom_options options;
  gw_custom_options_init(&options, sizeof options);
  options.shapes = shapes;
  options.forward = forward;
  options.backward_input = backward_input;
  gw_module* model = NULL;
  if (gw_custom_create(&options, &model) != GW_OK) return NULL;
  if (gw_module_materialize(model, NULL, 0, GW_DTYPE_NONE) == GW_OK) return model;
  gw_module_release(model);
  return NULL;
}

static gw_status round_trip(gw_module* model, gw_frame* frame) {
  float x[kElements] = {1};
  int64_t dim = kElements;
  gw_view view;
  gw_view_set(&view, x, &dim, 1, GW_F32);
  gw_tensor *y = NULL, *dx = NULL;
  size_t found = 0;
  gw_status status = gw_module_forward(model, &view, 1, frame, NULL, &y, 1, &found);
  if (status == GW_OK) status = gw_module_backward(model, &view, 1, frame, NULL, &dx, 1, &found);
  gw_tensor_release(y);
  gw_tensor_release(dx);
  return status;
}

/* Seconds of a forward and its backward through a custom module; below 0: a call failed. */
double loop_custom(int count) {
  gw_module* model = make();
  gw_frame* frame = NULL;
  gw_status status = model != NULL ? gw_frame_create(model, NULL, &frame) : GW_E_INTERNAL;
  const double start = now();
  for (int i = 0; status == GW_OK && i < count; ++i) status = round_trip(model, frame);
  const double seconds = (now() - start) / count;
  gw_frame_release(frame);
  gw_module_release(model);
  return status == GW_OK ? seconds : -1;
}

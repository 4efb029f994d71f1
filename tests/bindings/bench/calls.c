/* The C side of a comparison: the same calls as calls.rs and calls.jl, timed in C in the same process. */
#include <gangway/gangway.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static gw_gang *gang;
static gw_module *model;
static gw_frame *frame;

static void need(gw_status status) {
  if (status == GW_OK) return;
  gw_error_info e;
  gw_error_info_init(&e, sizeof e);
  gw_last_error(&e);
  fprintf(stderr, "%s: %s\n", gw_status_name(e.code), e.message);
  abort();
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* A module that does nothing but copy. */
static gw_status shapes(void *user, gw_call *call) {
  (void)user, (void)call;
  return GW_OK; /* outputs start as the first input */
}
static gw_status forward(void *user, gw_call *call) {
  (void)user;
  memcpy(call->outputs[0].data, call->inputs[0].data, 4 * sizeof(float));
  return GW_OK;
}
static gw_status backward(void *user, gw_call *call) {
  (void)user;
  memcpy(call->input_grads[0].data, call->output_grads[0].data, 4 * sizeof(float));
  return GW_OK;
}

/* Collective. A gang and a module of this side's own. */
void bench_open(void) {
  gw_custom_options c;
  gw_custom_options_init(&c, sizeof c);
  c.name = "copy";
  c.shapes = shapes, c.forward = forward, c.backward_input = backward;
  c.input_count = c.output_count = 1;
  need(gw_gang_create(NULL, &gang));
  need(gw_custom_create(&c, &model));
  need(gw_module_materialize(model, NULL, 0, GW_F32));
  need(gw_frame_create(model, NULL, &frame));
}

void bench_close(void) {
  gw_frame_release(frame);
  gw_module_release(model);
  need(gw_gang_shutdown(gang, -1));
  gw_gang_release(gang);
}

/* Each: seconds of so many calls. */
double bench_rank(size_t calls) {
  volatile int32_t kept = 0;
  const double start = now();
  for (size_t i = 0; i < calls; ++i) kept = gw_gang_rank(gang);
  (void)kept;
  return now() - start;
}

double bench_all_reduce(size_t count, size_t calls) {
  void *data = NULL;
  need(gw_gang_alloc(gang, count * sizeof(float), &data));
  memset(data, 0, count * sizeof(float));
  need(gw_gang_barrier(gang, NULL));
  const double start = now();
  for (size_t i = 0; i < calls; ++i) need(gw_gang_all_reduce(gang, data, data, count, GW_F32, GW_MAX, NULL));
  const double taken = now() - start;
  gw_gang_free(gang, data);
  return taken;
}

double bench_round_trip(size_t calls) {
  float x[4] = {1, 2, 3, 4};
  const int64_t shape[2] = {2, 2};
  gw_view view;
  need(gw_view_set(&view, x, shape, 2, GW_F32));
  const double start = now();
  for (size_t i = 0; i < calls; ++i) {
    gw_tensor *y = NULL, *dx = NULL;
    size_t count = 0;
    need(gw_module_forward(model, &view, 1, frame, NULL, &y, 1, &count));
    need(gw_module_backward(model, &view, 1, frame, NULL, &dx, 1, &count));
    gw_tensor_release(y);
    gw_tensor_release(dx);
  }
  return now() - start;
}

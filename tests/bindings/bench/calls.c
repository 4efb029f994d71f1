/* What a call costs in C and in another language in the same process, measured alike for each language: batches of C and
 * of the language in turn, so that both see the same machine; of each the median batch. calls.rs, calls.jl and calls.py make
 * the language's batches; what a batch is, is said here. */
#include <gangway/gangway.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { kRank, kSmall, kLarge, kRoundTrip, kCases, kBatches = 201 };
static const struct {
  const char *name;
  size_t calls;    /* of one batch */
  size_t elements; /* f32 */
} cases[kCases] = {{"rank()", 20000, 0},
                   {"all_reduce of 8 bytes", 200, 2},
                   {"all_reduce of 64 KiB", 50, 16384},
                   {"custom module, there and back", 100, 4}};

static char language[16];
static gw_gang *gang;
static gw_module *model;
static gw_frame *frame;
static float *data[kCases];
static double in_c[kBatches], own[kBatches];
static size_t done;

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

static void all_reduces(int which) {
  for (size_t i = 0; i < cases[which].calls; ++i)
    need(gw_gang_all_reduce(gang, data[which], data[which], cases[which].elements, GW_F32, GW_MAX, NULL));
}

static void ranks(void) {
  volatile int32_t kept = 0;
  for (size_t i = 0; i < cases[kRank].calls; ++i) kept = gw_gang_rank(gang);
  (void)kept;
}

static void round_trips(void) {
  const int64_t shape[2] = {2, 2};
  gw_view view;
  need(gw_view_set(&view, data[kRoundTrip], shape, 2, GW_F32));
  for (size_t i = 0; i < cases[kRoundTrip].calls; ++i) {
    gw_tensor *y = NULL, *dx = NULL;
    size_t count = 0;
    need(gw_module_forward(model, &view, 1, frame, NULL, &y, 1, &count));
    need(gw_module_backward(model, &view, 1, frame, NULL, &dx, 1, &count));
    gw_tensor_release(y);
    gw_tensor_release(dx);
  }
}

/* Collective. A gang, memory of it and a module of this side's own. */
void bench_open(const char *name) {
  gw_custom_options c;
  gw_custom_options_init(&c, sizeof c);
  c.name = "copy";
  c.shapes = shapes, c.forward = forward, c.backward_input = backward;
  c.input_count = c.output_count = 1;
  snprintf(language, sizeof language, "%s", name);
  need(gw_gang_create(NULL, &gang));
  need(gw_custom_create(&c, &model));
  need(gw_module_materialize(model, NULL, 0, GW_F32));
  need(gw_frame_create(model, NULL, &frame));
  for (int which = 0; which < kCases; ++which) {
    void *memory = NULL;
    need(gw_gang_alloc(gang, cases[which].elements * sizeof(float), &memory));
    data[which] = memset(memory, 0, cases[which].elements * sizeof(float));
  }
}

void bench_close(void) {
  for (int which = 0; which < kCases; ++which) gw_gang_free(gang, data[which]);
  gw_frame_release(frame);
  gw_module_release(model);
  need(gw_gang_shutdown(gang, -1));
  gw_gang_release(gang);
}

size_t bench_batches(void) { return kBatches; }
size_t bench_calls(int which) { return cases[which].calls; }
size_t bench_elements(int which) { return cases[which].elements; }

/* Collective. A batch in C; the language's follows it, between this and bench_own. */
void bench_c(int which) {
  need(gw_gang_barrier(gang, NULL));
  const double start = now();
  if (which == kRank)
    ranks();
  else if (which == kRoundTrip)
    round_trips();
  else
    all_reduces(which);
  in_c[done] = now() - start;
  need(gw_gang_barrier(gang, NULL));
}

static int order(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* What the language's batch took; after the last one rank 0 prints the medians, in ns for a call. */
void bench_own(int which, double seconds) {
  own[done++] = seconds;
  if (done < kBatches) return;
  done = 0;
  qsort(in_c, kBatches, sizeof *in_c, order);
  qsort(own, kBatches, sizeof *own, order);
  const double scale = 1e9 / (double)cases[which].calls, c = scale * in_c[kBatches / 2],
               o = scale * own[kBatches / 2];
  if (gw_gang_rank(gang) == 0) printf("%s\t%s\t%.1f\t%.1f\t%.2f\n", language, cases[which].name, c, o, o / c);
  fflush(stdout);
}

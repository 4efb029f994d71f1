/* The second part of the program of level 0.0: works with attached objects, callbacks that get the library's
 * structs, and a shard group that the caller updates. */
#define _GNU_SOURCE
#include "old_consumer.h"

typedef struct gw_module gw_module;
typedef struct gw_work gw_work;
typedef struct gw_tensor gw_tensor;
typedef struct gw_shard_group gw_shard_group;

typedef struct {
  size_t struct_size;
  const void* next;
  int32_t kind, reserved;
  double deviation;
  gw_status (*fill)(void*, int64_t, int64_t, void*, size_t, int32_t);
  void* user;
  void (*free_user)(void*);
} gw_init_options;
typedef struct {
  size_t struct_size;
  const void* next;
  const char* name;
  int64_t dims[8];
  int32_t ndim, dtype, frozen, reserved;
  const gw_init_options* initializer;
} gw_parameter_options;
typedef struct { /* the beginning of what a callback gets */
  size_t struct_size;
  const void* next;
  int32_t phase, training, recomputing, microbatch, input_count, output_count, parameter_count, reserved;
  const gw_view* inputs;
  gw_view* outputs;
  const gw_view *output_grads, *input_grads, *parameters;
} gw_call;
typedef struct { /* today's struct has children */
  size_t struct_size;
  const void* next;
  const char* name;
  gw_status (*shapes)(void*, gw_call*);
  gw_status (*forward)(void*, gw_call*);
  gw_status (*backward_input)(void*, gw_call*);
  gw_status (*backward_weight)(void*, gw_call*);
  int32_t (*accepts_dtype)(void*, int32_t);
  void* user;
  void (*free_user)(void*);
  void (*free_state)(void*);
  int32_t input_count, output_count;
  const gw_parameter_options* parameters;
  size_t parameter_count;
} gw_custom_options;

gw_status gw_interrupt_set(int32_t (*)(void*), void*, void (*)(void*));
gw_status gw_gang_all_reduce_async(gw_gang*, const void*, void*, size_t, int32_t, int32_t, void*, gw_work**);
gw_status gw_work_attach(gw_work*, void*, void (*)(void*));
gw_status gw_work_poll(gw_work*, int32_t*);
gw_status gw_work_wait(gw_work*, int64_t);
gw_status gw_work_error(gw_work*);
gw_work* gw_work_retain(gw_work*);
void gw_work_release(gw_work*);
void gw_init_options_init(gw_init_options*, size_t);
void gw_parameter_options_init(gw_parameter_options*, size_t);
void gw_custom_options_init(gw_custom_options*, size_t);
gw_status gw_custom_create(const gw_custom_options*, gw_module**);
gw_status gw_module_materialize(gw_module*, gw_gangs*, uint64_t, int32_t);
gw_status gw_module_forward(gw_module*, const gw_view*, size_t, void*, void*, gw_tensor**, size_t, size_t*);
void gw_module_release(gw_module*);
gw_status gw_tensor_view(const gw_tensor*, gw_view*);
void gw_tensor_release(gw_tensor*);
gw_status gw_shard_group_create(gw_gangs*, const char*, const gw_parameter_options*, size_t, const void*,
                                uint64_t, gw_shard_group**);
gw_status gw_shard_group_unshard(gw_shard_group*, const gw_view*, void*);
gw_status gw_shard_group_unshard_async(gw_shard_group*, void*, gw_work**);
gw_status gw_shard_group_reshard(gw_shard_group*, void*);
gw_status gw_shard_group_view(gw_shard_group*, size_t, int32_t, gw_view*);
gw_status gw_shard_group_add_gradient(gw_shard_group*, size_t, const gw_view*, void*);
gw_status gw_shard_group_reduce(gw_shard_group*, void*);
gw_status gw_shard_group_begin_update(gw_shard_group*, void*);
gw_status gw_shard_group_end_update(gw_shard_group*, void*);
void gw_shard_group_release(gw_shard_group*);

static void count(void* user) { ++*(int*)user; }
static int32_t go_on(void* user) { return *(int*)user < 0; }

static int works(gw_gang* gang) {
  int freed = 0, dropped = 0, done = 0;
  double x = 3, y = 0;
  gw_work* work = NULL;
  CHECK(gw_interrupt_set(go_on, &dropped, count) == GW_OK);
  CHECK(gw_gang_all_reduce_async(gang, &x, &y, 1, GW_F64, GW_SUM, NULL, &work) == GW_OK && work != NULL);
  CHECK(gw_work_attach(work, &freed, count) == GW_OK);
  CHECK(gw_work_retain(work) == work);
  CHECK(gw_work_wait(work, -1) == GW_OK && y == 3 && freed == 1);
  CHECK(gw_work_poll(work, &done) == GW_OK && done == 1 && gw_work_error(work) == GW_OK);
  gw_work_release(work);
  gw_work_release(work);
  CHECK(dropped == 0 && gw_interrupt_set(NULL, NULL, NULL) == GW_OK && dropped == 1 && freed == 1);
  return 0;
}

static gw_status twos(void* user, int64_t first, int64_t last, void* out, size_t n, int32_t dtype) {
  (void)user;
  if (n != (size_t)(last - first) || dtype != GW_F32) return GW_E_INVALID_ARGUMENT;
  for (size_t i = 0; i < n; ++i) ((float*)out)[i] = 2;
  return GW_OK;
}
/* Sets up "w", f32 [n], which is filled with twos. */
static void parameter(gw_parameter_options* p, gw_init_options* init, int64_t n, int* freed) {
  init->kind = GW_INIT_FILL;
  init->fill = twos;
  init->user = freed;
  init->free_user = count;
  p->name = "w";
  p->ndim = 1;
  p->dims[0] = n;
  p->initializer = init;
}

static gw_status as_input(void* user, gw_call* call) {
  (void)user;
  return call->input_count == 1 && call->output_count == 1 ? GW_OK : GW_E_INVALID_ARGUMENT;
}
static gw_status scale(void* user, gw_call* call) {
  (void)user;
  if (call->phase != GW_PHASE_FORWARD || call->training || call->parameter_count != 1)
    return GW_E_INVALID_ARGUMENT;
  const float w = *(const float*)call->parameters[0].data, *x = call->inputs[0].data;
  for (int64_t i = 0; i < call->inputs[0].shape[0]; ++i) ((float*)call->outputs[0].data)[i] = w * x[i];
  return GW_OK;
}
static gw_status never(void* user, gw_call* call) { return (void)user, (void)call, GW_E_NOT_SUPPORTED; }

static int callbacks(void) {
  int freed = 0, filled = 0;
  gw_module* model = NULL;
  gw_tensor* out = NULL;
  size_t outs = 0;
  gw_view y;
  SET_UP(gw_init_options, init);
  SET_UP(gw_parameter_options, w);
  SET_UP(gw_custom_options, custom);
  parameter(w, init, 1, &filled);
  custom->shapes = as_input;
  custom->forward = scale;
  custom->backward_input = never;
  custom->user = &freed;
  custom->free_user = count;
  custom->parameters = w;
  custom->parameter_count = 1;
  CHECK(gw_custom_create(custom, &model) == GW_OK);
  CHECK(gw_module_materialize(model, NULL, 1, GW_F32) == GW_OK);
  float x[3] = {1, 2, 3};
  const int64_t shape[1] = {3};
  const gw_view view = {x, 1, 0, 1, GW_F32, shape, NULL, 0};
  CHECK(gw_module_forward(model, &view, 1, NULL, NULL, &out, 1, &outs) == GW_OK && outs == 1);
  CHECK(gw_tensor_view(out, &y) == GW_OK && y.ndim == 1 && y.shape[0] == 3);
  const float* got = y.data;
  CHECK(got[0] == 2 && got[1] == 4 && got[2] == 6);
  gw_tensor_release(out);
  gw_module_release(model);
  CHECK(freed == 1 && filled == 1);
  return 0;
}

static int shard_group(void) {
  int filled = 0;
  gw_shard_group* group = NULL;
  gw_work* work = NULL;
  gw_view value;
  SET_UP(gw_init_options, init);
  SET_UP(gw_parameter_options, w);
  parameter(w, init, 2, &filled);
  CHECK(gw_shard_group_create(NULL, "old", w, 1, NULL, 1, &group) == GW_OK);
  CHECK(gw_shard_group_view(group, 0, GW_PART_FULL_VALUE, &value) != GW_OK && message()[0] != '\0');
  CHECK(gw_shard_group_unshard_async(group, NULL, &work) == GW_OK && gw_work_wait(work, -1) == GW_OK);
  gw_work_release(work);
  CHECK(gw_shard_group_unshard(group, NULL, NULL) == GW_OK);
  CHECK(gw_shard_group_view(group, 0, GW_PART_FULL_VALUE, &value) == GW_OK && ((float*)value.data)[1] == 2);
  float ones[2] = {1, 1};
  const int64_t shape[1] = {2};
  const gw_view gradient = {ones, 1, 0, 1, GW_F32, shape, NULL, 0};
  CHECK(gw_shard_group_add_gradient(group, 0, &gradient, NULL) == GW_OK);
  CHECK(gw_shard_group_reduce(group, NULL) == GW_OK && gw_shard_group_reshard(group, NULL) == GW_OK);
  CHECK(gw_shard_group_begin_update(group, NULL) == GW_OK);
  CHECK(gw_shard_group_view(group, 0, GW_PART_VALUE, &value) == GW_OK);
  ((float*)value.data)[1] = 5;
  CHECK(gw_shard_group_end_update(group, NULL) == GW_OK &&
        gw_shard_group_unshard(group, NULL, NULL) == GW_OK);
  CHECK(gw_shard_group_view(group, 0, GW_PART_FULL_VALUE, &value) == GW_OK && ((float*)value.data)[1] == 5);
  gw_shard_group_release(group);
  CHECK(filled == 1);
  return 0;
}

int parts(gw_gang* gang) { return works(gang) != 0 || callbacks() != 0 || shard_group() != 0; }

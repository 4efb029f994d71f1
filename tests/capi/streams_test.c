/* A caller's stream in every call that takes a stream and no gang. CPUs have no streams, so every rank
 * refuses it there. GPUs run on it. */
#include "models.h"

typedef struct scene {
  rank* me;
  gw_gangs* gangs;
  gw_module* model;
  gw_optimizer* optimizer;
  gw_shard_group* group;
  gw_frame* frame;
  gw_parameter* parameter;
  small_batch b;
  void* given; /* the stream that the call gets */
} scene;

static gw_status train(scene* s) {
  return gw_train_step(s->model, s->optimizer, &s->b.batch, NULL, s->given, NULL);
}
static gw_status evaluate(scene* s) {
  gw_step_result r;
  gw_step_result_init(&r, sizeof r);
  return gw_eval_step(s->model, &s->b.batch, NULL, s->given, &r);
}
static gw_status generate(scene* s) {
  const int64_t prompt[1] = {1};
  int64_t tokens[16];
  size_t count = 0;
  gw_generate_options o;
  gw_generate_options_init(&o, sizeof o);
  o.token_count = 2;
  return gw_generate(s->model, prompt, 1, &o, s->given, tokens, 16, &count);
}
static gw_status forward(scene* s) {
  gw_tensor* out[2] = {NULL, NULL};
  size_t count = 0;
  const gw_status status = gw_module_forward(s->model, s->b.batch.inputs, 1, NULL, s->given, out, 2, &count);
  for (int i = 0; i < 2; ++i) gw_tensor_release(out[i]);
  return status;
}
static gw_status step(scene* s) { return gw_optimizer_step(s->optimizer, NULL, s->given, NULL); }
static gw_status clip(scene* s) {
  double norm = 0;
  return gw_clip_grad_norm(s->model, 1, 2, s->given, &norm);
}
static gw_status zero(scene* s) { return gw_zero_grad(s->model, s->given); }
static gw_status check_replicas(scene* s) { return gw_module_check_replicas(s->model, s->given); }
static gw_status gather(scene* s) {
  gw_tensor* whole = NULL;
  const gw_status status = gw_parameter_gather(s->parameter, s->given, &whole);
  gw_tensor_release(whole);
  return status;
}
static gw_status assign(scene* s) {
  static const float values[5] = {1, 2, 3, 4, 5};
  static const int64_t shape[1] = {5};
  gw_view view;
  gw_view_set(&view, (void*)(uintptr_t)values, shape, 1, GW_F32);
  return gw_parameter_assign(s->parameter, &view, s->given);
}
static gw_status unshard(scene* s) {
  const gw_status status = gw_shard_group_unshard(s->group, NULL, s->given);
  return status == GW_OK ? gw_shard_group_reshard(s->group, s->given) : status;
}
static gw_status order(scene* s) {
  gw_tensor* value = NULL;
  gw_status status = gw_parameter_tensor(s->parameter, GW_PART_VALUE, &value);
  if (status == GW_OK) status = gw_tensor_order(value, s->given);
  gw_tensor_release(value);
  return status;
}
static gw_status reduce(scene* s) { return gw_shard_group_reduce(s->group, s->given); }
static gw_status update(scene* s) {
  const gw_status status = gw_shard_group_begin_update(s->group, s->given);
  return status == GW_OK ? gw_shard_group_end_update(s->group, s->given) : status;
}

/* `one`: all ranks get the refusal of one rank. */
static const struct {
  const char* name;
  gw_status (*run)(scene*);
  int one;
} kCalls[] = {{"gw_train_step", train, 1},
              {"gw_eval_step", evaluate, 1},
              {"gw_generate", generate, 1},
              {"gw_module_forward", forward, 1},
              {"gw_optimizer_step", step, 1},
              {"gw_clip_grad_norm", clip, 1},
              {"gw_zero_grad", zero, 0},
              {"gw_module_check_replicas", check_replicas, 1},
              {"gw_parameter_gather", gather, 1},
              {"gw_parameter_assign", assign, 1},
              {"gw_tensor_order", order, 0},
              {"gw_shard_group_unshard", unshard, 0},
              {"gw_shard_group_reduce", reduce, 0},
              {"gw_shard_group_begin_update", update, 1}};

static void* own_stream(rank* me) {
  void *data = NULL, *stream = NULL;
  if (!on_gpus(test_device())) return me; /* any pointer */
  if (gw_gang_alloc(me->gang, 1, &data) != GW_OK) return NULL;
  const int32_t device = place_of(me->gang, data).device_id;
  gw_gang_free(me->gang, data);
  if (cuda_calls()->set_device(device) != 0) return NULL;
  return cuda_calls()->create_stream(&stream, /*cudaStreamNonBlocking*/ 1, 0) == 0 ? stream : NULL;
}

static void every_call(rank* me) {
  scene s = {.me = me};
  gw_module* of_group = NULL;
  gw_parameter_options w;
  const gw_decoder_options o = small_llama();
  gw_parameter_options_init(&w, sizeof w);
  w.name = "w";
  w.ndim = 1;
  w.dims[0] = 5;
  void* const stream = own_stream(me);
  EXPECT(stream != NULL);
  EXPECT_OK(gw_gangs_create(me->gang, NULL, &s.gangs));
  EXPECT_OK(gw_decoder_create(&o, &s.model));
  EXPECT_OK(gw_parallelize(s.model, s.gangs, NULL));
  EXPECT_OK(gw_sgd_create(s.model, NULL, &s.optimizer));
  EXPECT_OK(gw_shard_group_create(s.gangs, "g", &w, 1, NULL, 1, &s.group));
  EXPECT_OK(gw_module_from_groups(&s.group, 1, &of_group));
  EXPECT_OK(gw_module_parameter(of_group, 0, &s.parameter));
  fill_batch(&s.b, 2, me->index);
  const int32_t last = me->size - 1;
  for (size_t i = 0; i < sizeof kCalls / sizeof *kCalls; ++i) {
    s.given = kCalls[i].one && me->index != last ? NULL : stream;
    const gw_status status = kCalls[i].run(&s);
    const char* const wrong = on_gpus(test_device())
                                  ? wrong_status(status, GW_OK, NULL)
                                  : wrong_status(status, GW_E_INVALID_ARGUMENT, "stream is not null");
    if (wrong[0] != '\0' || (status != GW_OK && kCalls[i].one && last > 0 && last_error().rank != last)) {
      snprintf(me->failure, sizeof me->failure, "%s: %s; the error is of rank %d", kCalls[i].name, wrong,
               (int)last_error().rank);
      gw_gang_abort(me->gang, me->failure);
      return;
    }
    s.given = NULL;
    EXPECT_OK(kCalls[i].run(&s)); /* on the rank's own stream */
  }
  gw_parameter_release(s.parameter);
  gw_module_release(of_group);
  gw_shard_group_release(s.group);
  gw_optimizer_release(s.optimizer);
  gw_module_release(s.model);
  gw_gangs_release(s.gangs);
}

static void a_callers_stream_is_used_or_refused(void** state) {
  (void)state;
  for (int32_t n = 1; n <= 2; ++n) run_ranks(n, every_call, NULL);
}

/* A collective refuses the stream on the rank that passes it. Its peers need not come. */
static void collective(rank* me) {
  void* const stream = own_stream(me);
  void *data = NULL, *other = NULL;
  gw_work* work = NULL;
  const float one = 1;
  float sum = 0;
  EXPECT(stream != NULL);
  EXPECT_OK(gw_gang_alloc(me->gang, sizeof one, &data));
  EXPECT_OK(gw_gang_alloc(me->gang, sizeof one, &other));
  write_bytes(me->gang, data, &one, sizeof one);
  const int here = on_gpus(test_device());
  const gw_status wanted = here ? GW_OK : GW_E_INVALID_ARGUMENT;
  const char* const said = here ? NULL : "stream is not null";
  EXPECT_STATUS(gw_gang_all_reduce(me->gang, data, other, 1, GW_F32, GW_SUM, stream), wanted, said);
  EXPECT_OK(gw_gang_all_reduce_async(me->gang, here ? other : data, other, 1, GW_F32, GW_SUM, NULL, &work));
  EXPECT_STATUS(gw_work_order(work, stream), wanted, said);
  EXPECT_OK(gw_work_wait(work, -1));
  gw_work_release(work);
  read_bytes(me->gang, &sum, other, sizeof sum);
  EXPECT(sum == (float)(here ? me->size * me->size : me->size));
  gw_gang_free(me->gang, data);
  gw_gang_free(me->gang, other);
}

static void collectives_run_on_a_callers_stream_or_refuse_it(void** state) {
  (void)state;
  for (int32_t n = 1; n <= 2; ++n) run_ranks(n, collective, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {test_on_device(a_callers_stream_is_used_or_refused),
                                     test_on_device(collectives_run_on_a_callers_stream_or_refuse_it)};
  return cmocka_run_group_tests_name("capi_streams", tests, NULL, NULL);
}

/* A thread that ends, or is cancelled, in a callback. The process goes on, and peers get an error. */
#include <gangway/gangway.h>
#include <pthread.h>
#include <unistd.h>

#include "models.h"

typedef struct {
  gw_gang* gang;
  gw_interrupt_fn hook;
  gw_status status;
  int returned;
} caller;

static int32_t ends_thread(void* user) {
  (void)user;
  pthread_exit(NULL);
}

static int32_t cancels_and_stops(void* user) {
  (void)user;
  pthread_cancel(pthread_self());
  sleep(0); /* the thread would end here if cancellation did not wait for the end of the call */
  return 1;
}

static void free_of_gang(void* data) { gw_gang_free(NULL, data); }

static void* call(void* argument) {
  caller* me = argument;
  void* x = NULL;
  me->status = gw_gang_alloc(me->gang, 4000, &x);
  if (me->status != GW_OK) return NULL;
  pthread_cleanup_push(free_of_gang, x);
  gw_interrupt_set(me->hook, NULL, NULL);
  me->status = gw_gang_all_reduce(me->gang, x, x, 1000, GW_F32, GW_SUM, NULL);
  me->returned = 1;
  pthread_testcancel();
  pthread_cleanup_pop(1);
  return argument;
}

static void in_the_hook(gw_interrupt_fn hook, int returns, void* answer) {
  gw_gang* gangs[2] = {NULL, NULL};
  two_gangs(gangs);
  caller me = {gangs[0], hook, GW_OK, 0};
  pthread_t thread;
  void* got = &me;
  assert_int_equal(pthread_create(&thread, NULL, call, &me), 0);
  assert_int_equal(pthread_join(thread, &got), 0);
  assert_ptr_equal(got, answer);
  assert_int_equal(me.returned, returns);
  if (returns) assert_int_equal(me.status, GW_E_CALLER);
  assert_int_equal(gw_gang_barrier(gangs[1], NULL), GW_E_ABORTED);
  for (int i = 0; i < 2; ++i) gw_gang_release(gangs[i]);
}

static void the_end_of_a_thread_in_the_interrupt_hook_unwinds(void** state) {
  (void)state;
  in_the_hook(ends_thread, 0, NULL);
}

static void cancelling_a_thread_waits_for_the_call_to_return(void** state) {
  (void)state;
  in_the_hook(cancels_and_stops, 1, PTHREAD_CANCELED);
}

/* --- in the callbacks of a custom module --- */

enum place { NOWHERE, ACCEPTS_DTYPE, FILL, SHAPES, FORWARD, BACKWARD_INPUT, BACKWARD_WEIGHT };
static const char* const kPlaces[] = {"nowhere", "accepts_dtype",  "fill",           "shapes",
                                      "forward", "backward_input", "backward_weight"};

typedef struct {
  line l; /* the user of the callbacks */
  enum place end_in;
  int manual;
  gw_gang* gang; /* null: the rank is alone */
  gw_gangs* gangs;
  gw_module* model;
  gw_optimizer* optimizer;
  gw_frame* frame;
  gw_tensor* outputs[2];
  gw_status status; /* -1: the thread ended in the call */
  char text[400];
} scene;

static void end_at(void* user, enum place here) {
  if (((scene*)user)->end_in == here) pthread_exit(NULL);
}
static int32_t accepts(void* user, gw_dtype dtype) {
  (void)dtype;
  end_at(user, ACCEPTS_DTYPE);
  return 1;
}
static gw_status fill(void* user, int64_t first, int64_t last, void* out, size_t count, gw_dtype dtype) {
  end_at(user, FILL);
  return line_fill(user, first, last, out, count, dtype);
}
static gw_status shapes(void* user, gw_call* call) {
  end_at(user, SHAPES);
  return line_shapes(user, call);
}
static gw_status forward(void* user, gw_call* call) {
  end_at(user, FORWARD);
  return line_forward(user, call);
}
static gw_status backward_input(void* user, gw_call* call) {
  end_at(user, BACKWARD_INPUT);
  return line_backward_input(user, call);
}
static gw_status backward_weight(void* user, gw_call* call) {
  end_at(user, BACKWARD_WEIGHT);
  return line_backward_weight(user, call);
}

static gw_module* ending_module(scene* s) {
  gw_init_options init;
  gw_parameter_options p;
  gw_custom_options c;
  gw_module* model = NULL;
  line_parameter(&p, &init, NULL);
  init.fill = fill;
  init.user = s;
  init.free_user = NULL;
  line_options(&c, &s->l, &p);
  c.accepts_dtype = accepts;
  c.shapes = shapes;
  c.forward = forward;
  c.backward_input = backward_input;
  c.backward_weight = backward_weight;
  return gw_custom_create(&c, &model) == GW_OK ? model : NULL;
}

static gw_status set_up(scene* s) {
  gw_status status = GW_OK;
  if (s->gang != NULL && s->gangs == NULL) status = gw_gangs_create(s->gang, NULL, &s->gangs);
  if (status == GW_OK && s->model == NULL) s->model = ending_module(s);
  gw_parallel_options o;
  gw_shard_options shard;
  gw_parallel_options_init(&o, sizeof o);
  gw_shard_options_init(&shard, sizeof shard);
  o.shard = &shard;
  shard.strategy = GW_NO_SHARD; /* so that the initializer runs on every rank */
  if (status == GW_OK) status = gw_parallelize(s->model, s->gangs, &o);
  if (status == GW_OK) status = gw_sgd_create(s->model, NULL, &s->optimizer);
  if (status == GW_OK) status = gw_frame_create(s->model, NULL, &s->frame);
  return status;
}

static gw_status train(scene* s) {
  static float x[3] = {1, 2, 3};
  static const int64_t shape[1] = {3};
  gw_view view;
  gw_batch batch;
  gw_view_set(&view, x, shape, 1, GW_F32);
  gw_batch_init(&batch, sizeof batch);
  batch.inputs = &view;
  batch.input_count = 1;
  batch.weight = 3;
  if (!s->manual) return gw_train_step(s->model, s->optimizer, &batch, NULL, NULL, NULL);
  size_t count = 0;
  gw_status status = gw_module_forward(s->model, &view, 1, s->frame, NULL, s->outputs, 2, &count);
  for (int i = 0; i < 2; ++i) gw_tensor_release(s->outputs[i]);
  gw_tensor* grads[1] = {NULL};
  if (status == GW_OK) status = gw_module_backward(s->model, NULL, 0, s->frame, NULL, grads, 1, &count);
  gw_tensor_release(grads[0]);
  return status == GW_OK ? gw_optimizer_step(s->optimizer, NULL, NULL, NULL) : status;
}

static void* live(void* argument) {
  scene* s = argument;
  s->status = -1;
  gw_status status = s->optimizer == NULL ? set_up(s) : GW_OK;
  if (status == GW_OK) status = train(s);
  s->status = status;
  snprintf(s->text, sizeof s->text, "%s", last_error().message);
  return NULL;
}

static void release_scene(scene* s) {
  gw_frame_release(s->frame);
  gw_optimizer_release(s->optimizer);
  gw_module_release(s->model);
  gw_gangs_release(s->gangs);
  gw_gang_release(s->gang);
}

static void one_rank_works_on(enum place place, int manual) {
  scene s;
  pthread_t thread;
  memset(&s, 0, sizeof s);
  if (on_gpus(test_device())) s.gang = alone(); /* otherwise the environment decides */
  s.manual = manual;
  s.end_in = place;
  assert_int_equal(pthread_create(&thread, NULL, live, &s), 0);
  assert_int_equal(pthread_join(thread, NULL), 0);
  if (s.status != -1) fail_msg("%s: the call returned %d: %s", kPlaces[place], s.status, s.text);
  s.end_in = NOWHERE;
  live(&s);
  if (s.status != GW_OK) fail_msg("%s, again: %s", kPlaces[place], s.text);
  release_scene(&s);
}

static void peers_are_told(enum place place, int manual) {
  enum { kRanks = 2, kEnds = 1 };
  scene scenes[kRanks];
  pthread_t threads[kRanks];
  gw_gang* gangs[kRanks] = {NULL, NULL};
  two_gangs(gangs);
  memset(scenes, 0, sizeof scenes);
  for (int r = 0; r < kRanks; ++r) {
    scenes[r].gang = gangs[r];
    scenes[r].manual = manual;
    scenes[r].end_in = r == kEnds ? place : NOWHERE;
    assert_int_equal(pthread_create(&threads[r], NULL, live, &scenes[r]), 0);
  }
  for (int r = 0; r < kRanks; ++r) assert_int_equal(pthread_join(threads[r], NULL), 0);
  assert_int_equal(scenes[kEnds].status, -1);
  if (scenes[0].status != GW_E_ABORTED ||
      strstr(scenes[0].text, "rank 1: its thread ended in a callback") == NULL)
    fail_msg("%s: status %d: %s", kPlaces[place], scenes[0].status, scenes[0].text);
  for (int r = 0; r < kRanks; ++r) release_scene(&scenes[r]);
}

static void the_end_of_a_thread_in_any_callback_leaves_a_rank_that_works_on(void** state) {
  (void)state;
  for (enum place place = ACCEPTS_DTYPE; place <= BACKWARD_WEIGHT; ++place)
    for (int manual = 0; manual < 2; ++manual) one_rank_works_on(place, manual);
}

static void the_end_of_a_thread_in_any_callback_is_told_to_peers(void** state) {
  (void)state;
  for (enum place place = ACCEPTS_DTYPE; place <= BACKWARD_WEIGHT; ++place)
    for (int manual = 0; manual < 2; ++manual) peers_are_told(place, manual);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_end_of_a_thread_in_the_interrupt_hook_unwinds),
      cmocka_unit_test(cancelling_a_thread_waits_for_the_call_to_return),
      cmocka_unit_test(the_end_of_a_thread_in_any_callback_leaves_a_rank_that_works_on),
      cmocka_unit_test(the_end_of_a_thread_in_any_callback_is_told_to_peers)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* A second thread that calls a model while a first one is in a call on it. */
#include <pthread.h>

#include "models.h"

typedef struct seen {
  line l; /* first, because line's callbacks get this */
  int looks;
  gw_module* model;
  gw_optimizer* optimizer;
  gw_frame* frame;
  gw_parameter* parameter;
  gw_status own, module, forward, optimizer_lr, backward, view;
  char text[256];
} seen;

/* Every call that changes nothing where it is refused. */
static void* look(void* user) {
  seen* s = user;
  gw_memory_use memory;
  gw_memory_use_init(&memory, sizeof memory);
  double lr = 0;
  gw_view view;
  gw_tensor* out[2];
  size_t count = 0;
  s->forward = gw_module_forward(s->model, NULL, 0, NULL, NULL, out, 2, &count);
  s->optimizer_lr = gw_optimizer_lr(s->optimizer, &lr);
  s->backward = gw_module_backward(s->model, NULL, 0, s->frame, NULL, out, 2, &count);
  s->view = gw_parameter_view(s->parameter, GW_PART_VALUE, &view);
  s->module = gw_module_memory(s->model, &memory);
  snprintf(s->text, sizeof s->text, "%s", s->module == GW_OK ? "" : last_error().message);
  return NULL;
}
static void look_from_another_thread(seen* s) {
  pthread_t other;
  assert_int_equal(pthread_create(&other, NULL, look, s), 0);
  assert_int_equal(pthread_join(other, NULL), 0);
}
static gw_status forward_that_looks(void* user, gw_call* call) {
  seen* s = user;
  if (s->looks) {
    gw_memory_use memory;
    gw_memory_use_init(&memory, sizeof memory);
    s->own = gw_module_memory(s->model, &memory);
    look_from_another_thread(s);
  }
  return line_forward(user, call);
}

static void a_second_thread_on_a_model_is_refused_and_nothing_changes(void** state) {
  (void)state;
  seen s = {0};
  int freed = 0;
  gw_init_options init;
  gw_parameter_options p;
  gw_custom_options c;
  line_parameter(&p, &init, &freed);
  line_options(&c, &s.l, &p);
  c.forward = forward_that_looks;
  assert_ok(gw_custom_create(&c, &s.model));
  assert_ok(gw_module_materialize(s.model, NULL, 0, GW_DTYPE_NONE));
  assert_ok(gw_optimizer_create(s.model, "sgd", NULL, NULL, 0, &s.optimizer));
  gw_frame_options fo;
  gw_frame_options_init(&fo, sizeof fo);
  assert_ok(gw_frame_create(s.model, &fo, &s.frame));
  assert_ok(gw_module_find_parameter(s.model, "w", &s.parameter));
  static float x[3] = {1, 2, 3};
  static const int64_t shape[1] = {3};
  gw_view view, got;
  gw_view_set(&view, x, shape, 1, GW_F32);
  gw_tensor* out[2];
  size_t count = 0;
  s.looks = 1;
  assert_ok(gw_module_forward(s.model, &view, 1, s.frame, NULL, out, 2, &count));
  assert_ok(gw_tensor_view(out[0], &got));
  assert_true(at(&got, 0) == 12);
  for (int i = 0; i < 2; ++i) gw_tensor_release(out[i]);
  assert_int_equal(s.own, GW_OK); /* a callback's own thread may go on */
  assert_int_equal(s.forward, GW_E_BUSY);
  assert_int_equal(s.optimizer_lr, GW_E_BUSY);
  assert_int_equal(s.backward, GW_E_BUSY);
  assert_int_equal(s.view, GW_E_BUSY);
  assert_int_equal(s.module, GW_E_BUSY);
  assert_string_equal(s.text,
                      "gw_module_memory: model is used by another thread at this moment; take turns, for "
                      "example by a lock");
  assert_string_equal(gw_status_name(GW_E_BUSY), "BUSY");
  /* The frame still has the forward of the first thread, and another thread may go on with it. */
  assert_ok(gw_module_backward(s.model, NULL, 0, s.frame, NULL, out, 2, &count));
  for (size_t i = 0; i < count; ++i) gw_tensor_release(out[i]);
  look_from_another_thread(&s);
  assert_int_equal(s.module, GW_OK);
  assert_int_equal(s.optimizer_lr, GW_OK);
  gw_parameter_release(s.parameter);
  gw_frame_release(s.frame);
  gw_optimizer_release(s.optimizer);
  gw_module_release(s.model);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_second_thread_on_a_model_is_refused_and_nothing_changes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The text that a callback passes to gw_error_set becomes a part of the error, on its own rank and on
 * peers. */
#include "models.h"

static void said_nowhere_else(void** state) {
  (void)state;
  assert_refused_as(gw_error_set("hello"), GW_E_INVALID_STATE, "none runs on this thread");
  assert_refused(gw_error_set(NULL), "message is null");
}

/* The outputs are the inputs. Sets the text `says`, then `then` if there is one, and returns `returns`. */
typedef struct speaker {
  const char *says, *then;
  gw_status returns;
} speaker;
static gw_status same_shapes(void* user, gw_call* call) {
  (void)user;
  (void)call;
  return GW_OK;
}
static gw_status speak(void* user, gw_call* call) {
  const speaker* s = user;
  (void)call;
  if (s->says != NULL && gw_error_set(s->says) != GW_OK) return GW_E_INTERNAL;
  if (s->then != NULL && gw_error_set(s->then) != GW_OK) return GW_E_INTERNAL;
  return s->returns;
}
/* Runs its child. If the child fails, sets a text of its own or leaves it to the child's. */
static gw_status run_child(void* user, gw_call* call) {
  const speaker* s = user;
  gw_view out;
  size_t count = 0;
  const gw_status status = gw_call_forward(call, 0, call->inputs, 1, &out, 1, &count);
  if (status != GW_OK && s->says != NULL) gw_error_set(s->says);
  return status;
}

static gw_module* speaking(speaker* s, gw_call_fn forward, gw_module* child) {
  gw_custom_options c;
  gw_module* model = NULL;
  gw_custom_options_init(&c, sizeof c);
  c.name = child != NULL ? "outer" : "inner";
  c.shapes = same_shapes;
  c.forward = forward;
  c.backward_input = speak;
  c.user = s;
  c.children = &child;
  c.child_count = child != NULL ? 1 : 0;
  assert_ok(gw_custom_create(&c, &model));
  gw_module_release(child);
  return model;
}

static void a_callback_gives_the_text_of_its_failure(void** state) {
  (void)state;
  speaker inner = {"no water", NULL, GW_E_CALLER}, outer = {NULL, NULL, GW_OK};
  gw_module* const model = speaking(&outer, run_child, speaking(&inner, speak, NULL));
  assert_ok(gw_module_materialize(model, NULL, 1, GW_DTYPE_NONE));
  float x[1] = {1};
  const int64_t shape[1] = {1};
  gw_view view;
  gw_tensor* out = NULL;
  size_t count = 0;
  gw_view_set(&view, x, shape, 1, GW_F32);
#define FORWARD() gw_module_forward(model, &view, 1, NULL, NULL, &out, 1, &count)
  /* Through a parent that sets no text itself. */
  assert_refused_as(
      FORWARD(), GW_E_CALLER,
      "outer: its forward callback returned 12 (CALLER): inner: its forward callback returned 12 "
      "(CALLER): no water");
  outer.says = "in room 4";
  assert_refused_as(FORWARD(), GW_E_CALLER, "outer: its forward callback returned 12 (CALLER): in room 4");
  outer.says = NULL;
  inner.then = "no\nlight\tat all"; /* the last text counts, and a text is one line */
  inner.returns = GW_E_IO;
  assert_refused_as(FORWARD(), GW_E_IO, "returned 14 (IO): no light at all");
  inner.returns = 4711; /* is no status of the library; the text is reported all the same */
  assert_refused_as(FORWARD(), GW_E_CALLER, "returned 4711 (UNKNOWN): no light at all");
  inner.returns = GW_OK; /* nothing failed, so nothing is reported, now or later */
  assert_ok(FORWARD());
  gw_tensor_release(out);
  assert_string_equal(last_error().message, "");
  inner.says = inner.then = NULL;
  inner.returns = GW_E_CALLER;
  assert_refused_as(FORWARD(), GW_E_CALLER, "inner: its forward callback returned 12 (CALLER)");
  assert_null(strstr(last_error().message, "light"));
#undef FORWARD
  gw_module_release(model);
}

/* --- peers --- */

static gw_status speaking_fill(void* user, int64_t first, int64_t last, void* out, size_t count,
                               gw_dtype dtype) {
  const rank* me = user;
  /* Rows of two f64 each. */
  if (count != (size_t)(last - first) * 2 || dtype != GW_F64) return GW_E_INTERNAL;
  memset(out, 0, count * sizeof(double));
  if (me->index == 0) return GW_OK;
  gw_error_set("the file of first values is gone");
  return GW_E_NOT_FOUND;
}

static void fill_fails(rank* me) {
  gw_gangs* gangs = NULL;
  gw_parameter_options p;
  gw_init_options init;
  gw_shard_group* group = NULL;
  gw_init_options_init(&init, sizeof init);
  init.kind = GW_INIT_FILL;
  init.fill = speaking_fill;
  init.user = me;
  gw_parameter_options_init(&p, sizeof p);
  p.name = "w";
  p.ndim = 2;
  p.dims[0] = 5;
  p.dims[1] = 2;
  p.dtype = GW_F64;
  p.initializer = &init;
  EXPECT_OK(gw_gangs_create(me->gang, NULL, &gangs));
  EXPECT_STATUS(gw_shard_group_create(gangs, "g", &p, 1, NULL, 1, &group), GW_E_NOT_FOUND,
                "its fill callback returned 10 (NOT_FOUND): the file of first values is gone");
  gw_gangs_release(gangs);
}

static gw_status speaking_line(void* user, gw_call* call) {
  const gw_status status = line_forward(user, call);
  if (status != GW_OK) gw_error_set("the lamp went out");
  return status;
}

static void forward_fails(rank* me) {
  line l = {0};
  int freed = 0;
  gw_init_options init;
  gw_parameter_options p;
  gw_custom_options c;
  gw_gangs* gangs = NULL;
  gw_module* model = NULL;
  gw_optimizer* opt = NULL;
  gw_batch batch;
  gw_view view;
  float x[2] = {1, 2};
  const int64_t shape[1] = {2};
  line_parameter(&p, &init, &freed);
  line_options(&c, &l, &p);
  c.forward = speaking_line;
  l.fail_forward = me->index == 1 ? GW_E_CALLER : 0;
  EXPECT_OK(gw_gangs_create(me->gang, NULL, &gangs));
  EXPECT_OK(gw_custom_create(&c, &model));
  EXPECT_OK(gw_parallelize(model, gangs, NULL));
  EXPECT_OK(gw_sgd_create(model, NULL, &opt));
  gw_view_set(&view, x, shape, 1, GW_F32);
  gw_batch_init(&batch, sizeof batch);
  batch.inputs = &view;
  batch.input_count = 1;
  batch.weight = 2;
  const gw_status status = gw_train_step(model, opt, &batch, NULL, NULL, NULL);
  EXPECT(status == (me->index == 1 ? GW_E_CALLER : GW_E_ABORTED));
  EXPECT(strstr(last_error().message, "line: its forward callback returned 12 (CALLER): the lamp went out") !=
         NULL);
  gw_optimizer_release(opt);
  gw_module_release(model);
  gw_gangs_release(gangs);
}

static void peers_are_told_what_the_callback_said(void** state) {
  (void)state;
  run_ranks(2, fill_fails, NULL);
  run_ranks(2, forward_fails, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {test_on_device(said_nowhere_else),
                                     test_on_device(a_callback_gives_the_text_of_its_failure),
                                     test_on_device(peers_are_told_what_the_callback_said)};
  return cmocka_run_group_tests_name("capi_callback_text", tests, NULL, NULL);
}

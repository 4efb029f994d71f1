#include "models.h"

/* An input that a line takes. */
static gw_view one_two_three(void) {
  static float x[3] = {1, 2, 3};
  static const int64_t shape[1] = {3};
  gw_view view;
  gw_view_set(&view, x, shape, 1, GW_F32);
  return view;
}

static void custom_module_runs_and_frees_once(void** state) {
  (void)state;
  line l = {0};
  int freed = 0;
  gw_init_options init;
  gw_parameter_options p;
  gw_custom_options c;
  line_parameter(&p, &init, &freed);
  line_options(&c, &l, &p);
  gw_module* model = NULL;
  assert_ok(gw_custom_create(&c, &model));
  memset(&c, 0xff, sizeof c); /* all of them were copied */
  memset(&p, 0xff, sizeof p);
  memset(&init, 0xff, sizeof init);
  assert_ok(gw_module_materialize(model, NULL, 0, GW_DTYPE_NONE));
  gw_frame_options fo;
  gw_frame_options_init(&fo, sizeof fo);
  fo.loss_scale = 0.5;
  gw_frame* frame = NULL;
  assert_ok(gw_frame_create(model, &fo, &frame));
  const gw_view view = one_two_three();
  gw_view got;
  gw_tensor* out[2];
  size_t count = 0;
  assert_ok(gw_module_forward(model, &view, 1, frame, NULL, out, 2, &count));
  assert_int_equal(count, 2);
  assert_ok(gw_tensor_view(out[0], &got));
  assert_true(at(&got, 0) == 12); /* w = 2 by the initializer */
  for (int i = 0; i < 2; ++i) gw_tensor_release(out[i]);
  assert_ok(gw_module_backward(model, NULL, 0, frame, NULL, out, 2, &count));
  for (size_t i = 0; i < count; ++i) gw_tensor_release(out[i]);
  assert_true(l.seed_seen == 0.5);
  assert_true(l.forwards == 1 && l.inputs == 1 && l.weights == 1);
  gw_parameter* w = NULL;
  gw_tensor* gradient = NULL;
  assert_ok(gw_module_find_parameter(model, "w", &w));
  assert_ok(gw_parameter_gather_gradient(w, NULL, &gradient));
  assert_ok(gw_tensor_view(gradient, &got));
  assert_true(at(&got, 0) == 3.0f); /* the sum of x, times the gradient of the loss */
  gw_tensor_release(gradient);
  /* Too little room for the results is refused before anything runs. */
  const int ran = l.forwards;
  assert_refused(gw_module_forward(model, &view, 1, NULL, NULL, out, 1, &count),
                 "2 results, out_capacity is 1");
  assert_refused(gw_module_forward(model, &view, 1, NULL, NULL, NULL, 2, &count), "out_tensors is null");
  assert_int_equal(l.forwards, ran);
  assert_int_equal(count, 0);
  /* The error of a callback that fails has its code, the module's name and the callback's name. */
  l.fail_forward = GW_E_CALLER;
  assert_refused_as(gw_module_forward(model, &view, 1, NULL, NULL, out, 2, &count), GW_E_CALLER, "line");
  assert_non_null(strstr(last_error().message, "forward"));
  l.fail_forward = 4711; /* is no status of the library */
  assert_refused_as(gw_module_forward(model, &view, 1, NULL, NULL, out, 2, &count), GW_E_CALLER, "4711");
  l.fail_forward = 0;
  /* The state of a forward without a backward is freed with the frame (the leak check would see it). */
  assert_ok(gw_module_forward(model, &view, 1, frame, NULL, out, 2, &count));
  for (int i = 0; i < 2; ++i) gw_tensor_release(out[i]);
  gw_module_release(model);
  assert_int_equal(l.frees, 0); /* the frame and the parameter keep it */
  gw_frame_release(frame);
  gw_parameter_release(w);
  assert_int_equal(l.frees, 1);
  assert_int_equal(freed, 1);
}

static void without_shapes_every_output_is_one_number(void** state) {
  (void)state;
  line l = {0};
  int freed = 0;
  gw_init_options init;
  gw_parameter_options p;
  gw_custom_options c;
  gw_module* model = NULL;
  line_parameter(&p, &init, &freed);
  line_options(&c, &l, &p);
  c.shapes = NULL;
  assert_ok(gw_custom_create(&c, &model));
  assert_ok(gw_module_materialize(model, NULL, 0, GW_DTYPE_NONE));
  const gw_view view = one_two_three();
  gw_view got;
  gw_tensor* out[2];
  size_t count = 0;
  assert_ok(gw_module_forward(model, &view, 1, NULL, NULL, out, 2, &count));
  assert_int_equal(count, 2);
  for (int i = 0; i < 2; ++i) {
    assert_ok(gw_tensor_view(out[i], &got));
    assert_true(got.dtype == GW_F64 && got.ndim == 1 && got.shape[0] == 1);
    assert_true(at(&got, 0) == (i == 0 ? 12 : 3)); /* w = 2; the weight */
    gw_tensor_release(out[i]);
  }
  gw_module_release(model);
}

static void refused_custom_modules_free_once(void** state) {
  (void)state;
  line l = {0};
  int freed[3] = {0, 0, 0};
  gw_init_options init[3];
  gw_parameter_options p[3];
  gw_custom_options c;
  gw_module* model = NULL;
  int calls = 0;
#define REFUSED_WITH(change, part)                                              \
  for (int i_ = 0; i_ < 3; ++i_) line_parameter(&p[i_], &init[i_], &freed[i_]); \
  p[0].name = "a";                                                              \
  p[1].name = "b";                                                              \
  line_options(&c, &l, p);                                                      \
  c.parameter_count = 3;                                                        \
  change;                                                                       \
  assert_refused(gw_custom_create(&c, &model), part);                           \
  assert_null(model);                                                           \
  ++calls;                                                                      \
  assert_int_equal(l.frees, calls);                                             \
  for (int i_ = 0; i_ < 3; ++i_) assert_int_equal(freed[i_], calls)
  REFUSED_WITH(c.forward = NULL, "needs forward and backward_input");
  REFUSED_WITH(c.backward_input = NULL, "needs forward and backward_input");
  REFUSED_WITH(c.input_count = 0, "input_count is 0");
  REFUSED_WITH(c.output_count = -1, "output_count is -1");
  REFUSED_WITH(p[1].name = NULL, "name is null");
  REFUSED_WITH(p[1].ndim = 9, "ndim 9");
  REFUSED_WITH(p[1].dims[0] = -2, "dim 0 of a tensor is -2");
  REFUSED_WITH(init[2].kind = 7, "kind is 7");
  REFUSED_WITH(init[0].fill = NULL, "fill is null");
  REFUSED_WITH((init[1].kind = GW_INIT_NORMAL, init[1].deviation = -1), "deviation is -1");
  REFUSED_WITH(c.child_count = 1, "children is null");
  REFUSED_WITH(p[2].name = "a", "\"a\" stands twice");
#undef REFUSED_WITH
  /* One initializer for all parameters is one object. */
  for (int i = 0; i < 3; ++i) line_parameter(&p[i], &init[0], &freed[0]);
  p[0].name = "a";
  p[1].name = "b";
  line_options(&c, &l, p);
  c.parameter_count = 3;
  assert_ok(gw_custom_create(&c, &model));
  assert_int_equal(freed[0], calls);
  gw_module_release(model);
  assert_int_equal(freed[0], calls + 1);
  assert_refused(
      (line_options(&c, &l, p), c.parameter_count = 3, p[2].ndim = -1, gw_custom_create(&c, &model)),
      "ndim -1");
  assert_int_equal(freed[0], calls + 2);
  /* The user of a built-in initializer is freed too. */
  line_parameter(&p[0], &init[0], &freed[1]);
  init[0].kind = GW_INIT_ONES;
  line_options(&c, &l, p);
  const int before = freed[1];
  assert_ok(gw_custom_create(&c, &model));
  gw_module_release(model);
  assert_int_equal(freed[1], before + 1);
  const int frees = l.frees;
  line_options(&c, &l, p);
  assert_refused(gw_custom_create(&c, NULL), "out_model is null");
  assert_int_equal(l.frees, frees + 1);
  assert_refused(gw_custom_create(NULL, &model), "options is null");
}

/* A custom module that only runs its child, and calls the library inside its callbacks. */
typedef struct parent {
  gw_status wrong_child, wrong_capacity, null_views, backward_in_forward, wrong_capacity_back,
      null_views_back;
} parent;
static gw_status parent_shapes(void* user, gw_call* call) {
  (void)user;
  (void)call; /* outputs have the shape of the first input */
  return GW_OK;
}
static gw_status parent_forward(void* user, gw_call* call) {
  parent* p = user;
  gw_view out;
  size_t count = 0;
  p->wrong_child = gw_call_forward(call, 3, call->inputs, 1, &out, 1, &count);
  p->backward_in_forward = gw_call_backward(NULL, 0, NULL, 0, &out, 1, &count);
  p->wrong_capacity = gw_call_forward(call, 0, call->inputs, 1, &out, 0, &count);
  p->null_views = gw_call_forward(call, 0, call->inputs, 1, NULL, 1, &count);
  const gw_status status = gw_call_forward(call, 0, call->inputs, 1, &out, 1, &count);
  if (status != GW_OK) return status;
  if (count != 1) return GW_E_INTERNAL;
  pass_on(&call->outputs[0], &out, call);
  return GW_OK;
}
static gw_status parent_backward(void* user, gw_call* call) {
  parent* p = user;
  gw_view grads;
  size_t count = 9;
  p->wrong_capacity_back = gw_call_backward(call, 0, call->output_grads, 1, &grads, 0, &count);
  p->null_views_back = gw_call_backward(call, 0, call->output_grads, 1, NULL, 1, &count);
  if (count != 0) return GW_E_INTERNAL;
  const gw_status status = gw_call_backward(call, 0, call->output_grads, 1, &grads, 1, &count);
  if (status != GW_OK) return status;
  if (count != 1) return GW_E_INTERNAL;
  if (call->input_grads[0].data != NULL) pass_on(&call->input_grads[0], &grads, call);
  return GW_OK;
}
/* Returns the failure of a call that it makes. */
static gw_status parent_fails(void* user, gw_call* call) {
  (void)user;
  gw_view out;
  size_t count = 0;
  return gw_call_forward(call, 3, call->inputs, 1, &out, 1, &count);
}

static void custom_module_calls_its_children(void** state) {
  (void)state;
  parent p = {0};
  gw_module *child = NULL, *model = NULL;
  assert_ok(gw_linear_create(2, 2, 0, &child));
  gw_custom_options c;
  gw_custom_options_init(&c, sizeof c);
  c.shapes = parent_shapes;
  c.forward = parent_forward;
  c.backward_input = parent_backward;
  c.user = &p;
  c.children = &child;
  c.child_count = 1;
  const char* name = "inner";
  c.child_names = &name;
  assert_ok(gw_custom_create(&c, &model));
  gw_module_release(child);
  assert_ok(gw_module_materialize(model, NULL, 1, GW_F64));
  gw_parameter* w = NULL;
  assert_ok(gw_module_find_parameter(model, "inner.weight", &w));
  double values[4] = {1, 2, 3, 4}, x[2] = {1, 10}, dy[2] = {1, 1};
  const int64_t w_shape[2] = {2, 2}, x_shape[2] = {1, 2};
  gw_view view, got;
  gw_view_set(&view, values, w_shape, 2, GW_F64);
  assert_ok(gw_parameter_assign(w, &view, NULL));
  gw_parameter_release(w);
  gw_frame* frame = NULL;
  assert_ok(gw_frame_create(model, NULL, &frame));
  gw_tensor* out = NULL;
  size_t count = 0;
  gw_view_set(&view, x, x_shape, 2, GW_F64);
  assert_ok(gw_module_forward(model, &view, 1, frame, NULL, &out, 1, &count));
  assert_ok(gw_tensor_view(out, &got));
  assert_true(at(&got, 0) == 21 && at(&got, 1) == 43);
  gw_tensor_release(out);
  assert_int_equal(p.wrong_child, GW_E_INVALID_ARGUMENT);
  assert_int_equal(p.backward_in_forward, GW_E_INVALID_ARGUMENT);
  assert_int_equal(p.wrong_capacity, GW_E_INVALID_ARGUMENT);
  assert_int_equal(p.null_views, GW_E_INVALID_ARGUMENT);
  gw_view_set(&view, dy, x_shape, 2, GW_F64);
  assert_ok(gw_module_backward(model, &view, 1, frame, NULL, &out, 1, &count));
  assert_ok(gw_tensor_view(out, &got));
  assert_true(at(&got, 0) == 4 && at(&got, 1) == 6);
  assert_int_equal(p.wrong_capacity_back, GW_E_INVALID_ARGUMENT);
  assert_int_equal(p.null_views_back, GW_E_INVALID_ARGUMENT);
  gw_tensor_release(out);
  gw_frame_release(frame);
  gw_module_release(model);
  /* The error has the text of the call that failed inside. */
  assert_ok(gw_linear_create(2, 2, 0, &child));
  c.forward = parent_fails;
  assert_ok(gw_custom_create(&c, &model));
  gw_module_release(child);
  assert_ok(gw_module_materialize(model, NULL, 1, GW_F64));
  gw_view_set(&view, x, x_shape, 2, GW_F64);
  assert_refused(gw_module_forward(model, &view, 1, NULL, NULL, &out, 1, &count),
                 "child is 3, the module has 1");
  gw_module_release(model);
  /* Outside of a callback. */
  gw_call call;
  memset(&call, 0, sizeof call);
  assert_refused_as(gw_call_forward(&call, 0, NULL, 0, &got, 1, &count), GW_E_INVALID_STATE,
                    "no module that runs");
  assert_refused_as(gw_call_backward(&call, 0, NULL, 0, &got, 1, &count), GW_E_INVALID_STATE,
                    "no module that runs");
  assert_refused(gw_call_forward(NULL, 0, NULL, 0, &got, 1, &count), "call is null");
  assert_refused(gw_call_backward(NULL, 0, NULL, 0, &got, 1, &count), "call is null");
}

/* Takes only f32, and notes the dtype that it was asked for. */
static gw_dtype asked;
static int32_t takes_f32(void* user, gw_dtype dtype) {
  (void)user;
  asked = dtype;
  return dtype == GW_F32;
}

static void custom_module_is_asked_for_its_dtype_before_it_has_memory(void** state) {
  (void)state;
  line l = {0};
  gw_custom_options c;
  gw_parameter_options p;
  gw_shard_options s;
  gw_dtype_rule rule;
  gw_module *model = NULL, *ruled = NULL;
  gw_parameter_options_init(&p, sizeof p);
  p.name = "w";
  p.ndim = 1;
  p.dims[0] = 1;
  line_options(&c, &l, &p);
  c.accepts_dtype = takes_f32;
  assert_ok(gw_custom_create(&c, &model));
  assert_refused_as(gw_module_materialize(model, NULL, 1, GW_F64), GW_E_NOT_SUPPORTED,
                    "module line does not compute in f64, the dtype of parameter w");
  assert_int_equal(asked, GW_F64);
  assert_ok(gw_module_materialize(model, NULL, 1, GW_F32));
  assert_int_equal(asked, GW_F32);
  gw_module_release(model);
  /* A rule for its parameter alone sets the dtype, and the dtype of the parameter group is one that it
   * takes. */
  assert_ok(gw_custom_create(&c, &ruled));
  gw_dtype_rule_init(&rule, sizeof rule);
  rule.pattern = "w";
  rule.dtype = GW_BF16;
  gw_shard_options_init(&s, sizeof s);
  s.rules = &rule;
  s.rule_count = 1;
  assert_ok(gw_fully_shard(ruled, "", NULL, &s));
  assert_refused_as(gw_module_materialize(ruled, NULL, 1, GW_F32), GW_E_NOT_SUPPORTED,
                    "module line does not compute in bf16, the dtype of parameter w");
  gw_module_release(ruled);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      test_on_device(custom_module_runs_and_frees_once),
      test_on_device(without_shapes_every_output_is_one_number),
      test_on_device(refused_custom_modules_free_once), test_on_device(custom_module_calls_its_children),
      test_on_device(custom_module_is_asked_for_its_dtype_before_it_has_memory)};
  return cmocka_run_group_tests_name("capi_custom", tests, NULL, NULL);
}

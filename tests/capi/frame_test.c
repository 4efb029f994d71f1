/* Frames in a manual loop: a forward without a backward leaves nothing behind, and no_sync postpones
 * reductions. */
#include "manual.h"

#include <math.h>

/* user: the strategy. */
static void given_up(rank* me) {
  loop l;
  EXPECT_OK(set_up(me, *(const gw_strategy*)me->user, &l));
  const double want = norm_of_one(&l);
  double norm = -1;
  gw_parameter* p = NULL;
  gw_tensor* whole = NULL;
  gw_view view;
  EXPECT(want > 0);
  EXPECT_OK(forward(&l, 2));
  EXPECT_STATUS(forward(&l, 2), GW_E_INVALID_STATE, "gw_frame_reset");
  EXPECT_OK(gw_frame_reset(l.frame));
  EXPECT(norm_of_one(&l) == want);
  EXPECT_REFUSED(forward(&l, 1), "out_capacity is 1");
  EXPECT(norm_of_one(&l) == want);
  EXPECT_OK(forward(&l, 2));
  EXPECT_OK(gw_zero_grad(l.model, NULL));
  EXPECT_OK(backward(&l)); /* this backward makes all gradients */
  EXPECT_OK(gw_clip_grad_norm(l.model, 1e9, 2, NULL, &norm));
  EXPECT(norm == want);
  EXPECT_OK(gw_zero_grad(l.model, NULL));
  EXPECT_OK(forward(&l, 2));
  gw_frame_release(l.frame);
  l.frame = NULL;
  /* No parameter group is left unsharded. */
  EXPECT_OK(gw_module_find_parameter(l.model, "lm_head.weight", &p));
  EXPECT_OK(gw_parameter_gather(p, NULL, &whole));
  EXPECT_OK(gw_tensor_view(whole, &view));
  EXPECT_OK(gw_parameter_assign(p, &view, NULL));
  gw_tensor_release(whole);
  gw_parameter_release(p);
  EXPECT_OK(gw_frame_create(l.model, NULL, &l.frame));
  EXPECT(norm_of_one(&l) == want);
  tear_down(&l);
}

static void a_forward_without_backward_leaves_nothing_behind(void** state) {
  (void)state;
  const gw_strategy strategies[3] = {GW_FULL_SHARD, GW_SHARD_GRAD_OP, GW_NO_SHARD};
  for (int i = 0; i < 3; ++i) run_ranks(2, given_up, (void*)&strategies[i]);
}

static void kept_back(rank* me) {
  loop l;
  gw_gang* losses = NULL;
  gw_gang_traffic before, after;
  EXPECT_OK(set_up(me, GW_NO_SHARD, &l));
  const double one = norm_of_one(&l);
  EXPECT_OK(gw_gangs_get(l.gangs, "dp_replicate+dp_shard+cp", &losses));
  gw_gang_traffic_init(&before, sizeof before);
  gw_gang_traffic_init(&after, sizeof after);
  EXPECT_OK(gw_module_set_no_sync(l.model, 1));
  EXPECT_OK(gw_gang_get_traffic(losses, &before));
  EXPECT_OK(forward(&l, 2));
  EXPECT_OK(backward(&l));
  EXPECT_OK(gw_gang_get_traffic(losses, &after));
  EXPECT(after.calls == before.calls);
  EXPECT_OK(gw_module_set_no_sync(l.model, 0));
  EXPECT_OK(forward(&l, 2));
  EXPECT_OK(backward(&l));
  EXPECT_OK(gw_gang_get_traffic(losses, &after));
  EXPECT(after.calls > before.calls);
  double norm = 0;
  EXPECT_OK(gw_clip_grad_norm(l.model, 1e9, 2, NULL, &norm));
  EXPECT(fabs(norm - 2 * one) < 1e-12 * one);
  gw_gang_release(losses);
  tear_down(&l);
}

static void no_sync_keeps_reductions_for_the_last_backward(void** state) {
  (void)state;
  run_ranks(2, kept_back, NULL);
}

static void non_finite_gradients_are_the_reason_of_a_skipped_step(void** state) {
  (void)state;
  gw_module* model = NULL;
  gw_frame* frame = NULL;
  gw_optimizer* opt = NULL;
  gw_tensor* out = NULL;
  gw_view view;
  size_t count = 0;
  double x = 1, dy = HUGE_VAL;
  const int64_t shape[2] = {1, 1};
  assert_ok(gw_linear_create(1, 1, 0, &model));
  assert_ok(gw_module_materialize(model, NULL, 1, GW_F64));
  assert_ok(gw_sgd_create(model, NULL, &opt));
  assert_ok(gw_frame_create(model, NULL, &frame));
  gw_view_set(&view, &x, shape, 2, GW_F64);
  assert_ok(gw_module_forward(model, &view, 1, frame, NULL, &out, 1, &count));
  gw_tensor_release(out);
  gw_view_set(&view, &dy, shape, 2, GW_F64);
  assert_ok(gw_module_backward(model, &view, 1, frame, NULL, &out, 1, &count));
  gw_tensor_release(out);
  gw_step_result r;
  gw_step_result_init(&r, sizeof r);
  assert_ok(gw_optimizer_step(opt, NULL, NULL, &r));
  assert_int_equal(r.skipped, 1);
  assert_int_equal(r.skip_reason, GW_SKIP_NON_FINITE);
  gw_frame_release(frame);
  gw_optimizer_release(opt);
  gw_module_release(model);
}

static void a_module_has_one_parent(void** state) {
  (void)state;
  gw_module *part = NULL, *other = NULL, *whole = NULL, *second = NULL;
  assert_ok(gw_linear_create(2, 2, 0, &part));
  assert_ok(gw_linear_create(2, 2, 0, &other));
  gw_module* const twice[3] = {part, other, part};
  assert_refused(gw_sequential_create(twice, 3, &whole), "models[2]");
  assert_ok(gw_sequential_create(twice, 2, &whole));
  assert_refused_as(gw_sequential_create(&part, 1, &second), GW_E_INVALID_STATE,
                    "models[0] is part of another");
  assert_refused_as(gw_module_materialize(part, NULL, 1, GW_F32), GW_E_INVALID_STATE, "part of another");
  assert_ok(gw_module_materialize(whole, NULL, 1, GW_F32));
  gw_module_release(whole);
  gw_module_release(other);
  gw_module_release(part);
}

static void manual_layers_refuse_what_is_missing(void** state) {
  (void)state;
  const gw_decoder_options o = small_llama();
  gw_module* layers[3] = {NULL, NULL, NULL};
  assert_ok(gw_linear_create(4, 4, 0, &layers[0]));
  assert_ok(gw_mlp_create(4, 8, 0, &layers[1]));
  assert_ok(gw_decoder_create(&o, &layers[2]));
  const int64_t dims[2] = {2, 4};
  float data[8] = {0};
  gw_view x, missing;
  memset(&x, 0, sizeof x);
  x.device_type = GW_DEVICE_CPU;
  x.dtype = GW_F32;
  x.ndim = 2;
  x.shape = dims;
  missing = x;
  x.data = data;
  for (int i = 0; i < 3; ++i) {
    gw_tensor* out[2] = {NULL, NULL};
    size_t count = 0;
    gw_frame* frame = NULL;
    assert_ok(gw_module_materialize(layers[i], NULL, 1, GW_F32));
    assert_ok(gw_frame_create(layers[i], NULL, &frame));
    assert_refused(gw_module_forward(layers[i], NULL, 0, NULL, NULL, out, 2, &count), "input");
    assert_refused(gw_module_forward(layers[i], NULL, 0, frame, NULL, out, 2, &count), "input");
    if (i < 2) {
      assert_ok(gw_module_forward(layers[i], &x, 1, frame, NULL, out, 1, &count));
      gw_tensor_release(out[0]);
      out[0] = NULL;
      assert_refused(gw_module_backward(layers[i], NULL, 0, frame, NULL, out, 1, &count), "got no gradient");
      assert_ok(gw_module_forward(layers[i], &x, 1, frame, NULL, out, 1, &count));
      gw_tensor_release(out[0]);
      assert_int_not_equal(gw_module_backward(layers[i], &missing, 1, frame, NULL, out, 1, &count), GW_OK);
    }
    gw_frame_release(frame);
    gw_module_release(layers[i]);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      test_on_device(a_forward_without_backward_leaves_nothing_behind),
      test_on_device(non_finite_gradients_are_the_reason_of_a_skipped_step),
      test_on_device(a_module_has_one_parent),
      test_on_device(manual_layers_refuse_what_is_missing),
      test_on_device(no_sync_keeps_reductions_for_the_last_backward),
  };
  return cmocka_run_group_tests_name("capi_frame", tests, NULL, NULL);
}

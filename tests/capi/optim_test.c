#include "ones.h"

static void sgd_steps_by_the_formula(void** state) {
  (void)state;
  gw_shard_group* group = NULL;
  gw_module* model = ones(&group, NULL);
  assert_non_null(model);
  gw_sgd_options o;
  gw_sgd_options_init(&o, sizeof o);
  assert_true(o.lr == 1e-3 && o.momentum == 0);
  o.lr = 0.1;
  o.momentum = 0.5;
  gw_optimizer* opt = NULL;
  assert_ok(gw_sgd_create(model, &o, &opt));
  int64_t steps = -1;
  double lr = 0;
  assert_ok(gw_optimizer_steps(opt, &steps));
  assert_int_equal(steps, 0);
  gw_step_options s;
  gw_step_options_init(&s, sizeof s);
  gw_step_result r;
  gw_step_result_init(&r, sizeof r);
  assert_ok(add(group, 1, 2, 3, 4));
  assert_ok(gw_optimizer_step(opt, &s, NULL, &r));
  assert_true(near(value(model, 1), 1 - 0.1 * 2));
  assert_ok(add(group, 1, 2, 3, 4));
  s.scale = 0.5;
  assert_ok(gw_optimizer_step(opt, &s, NULL, NULL)); /* velocity 0.5 * 2 + 1 */
  assert_true(near(value(model, 1), 0.8 - 0.1 * 2));
  gw_parameter* w = NULL;
  gw_view view;
  assert_ok(gw_module_find_parameter(model, "g.w", &w));
  assert_ok(gw_parameter_state(w, opt, "momentum", &view));
  assert_true(near(at(&view, 1), 2));
  assert_refused_as(gw_parameter_state(w, opt, "exp_avg", &view), GW_E_NOT_FOUND, "exp_avg");
  assert_refused(gw_parameter_state(NULL, opt, "momentum", &view), "parameter is null");
  assert_refused(gw_parameter_state(w, NULL, "momentum", &view), "optimizer is null");
  assert_refused(gw_parameter_state(w, opt, NULL, &view), "name is null");
  assert_refused(gw_parameter_state(w, opt, "momentum", NULL), "out_view is null");
  gw_parameter_release(w);
  assert_ok(gw_optimizer_steps(opt, &steps));
  assert_int_equal(steps, 2);
  assert_ok(gw_optimizer_set_lr(opt, 0.25));
  assert_ok(gw_optimizer_lr(opt, &lr));
  assert_true(lr == 0.25);
  assert_refused(gw_optimizer_set_lr(opt, -1), "lr = -1");
  assert_refused(gw_optimizer_set_lr(opt, NAN), "lr = nan");
  double scale = 0;
  assert_ok(gw_optimizer_loss_scale(opt, &scale));
  assert_true(scale == 1 && r.loss_scale == 1);
  assert_ok(gw_optimizer_set_loss_scale(opt, 8)); /* the gradients are then eight times too large */
  const double unscaled = value(model, 1);
  assert_ok(add(group, 8, 16, 24, 32));
  s.scale = 1;
  s.max_grad_norm = 100;
  assert_ok(gw_optimizer_step(opt, &s, NULL, &r)); /* velocity 0.5 * 2 + 2 */
  assert_true(near(value(model, 1), unscaled - 0.25 * 3));
  assert_true(r.loss_scale == 8 && near(r.grad_norm, sqrt(30)));
  assert_ok(gw_optimizer_loss_scale(opt, &scale));
  assert_true(scale == 8);
  assert_refused(gw_optimizer_set_loss_scale(opt, 0), "loss scale = 0");
  assert_refused(gw_optimizer_set_loss_scale(opt, INFINITY), "loss scale = inf");
  /* Gradients that are not finite skip the step and change nothing. */
  const double before = value(model, 0);
  assert_ok(add(group, INFINITY, 0, 0, 0));
  assert_ok(gw_optimizer_step(opt, NULL, NULL, &r));
  assert_int_equal(r.skipped, 1);
  assert_true(value(model, 0) == before);
  /* The optimizer keeps the model alive. */
  gw_module_release(model);
  gw_shard_group_release(group);
  assert_ptr_equal(gw_optimizer_retain(opt), opt);
  gw_optimizer_release(opt);
  assert_ok(gw_optimizer_step(opt, NULL, NULL, NULL));
  gw_optimizer_release(opt);
  gw_optimizer_release(NULL);
  assert_null(gw_optimizer_retain(NULL));
}

static void adamw_steps_by_the_formula(void** state) {
  (void)state;
  gw_shard_group* group = NULL;
  gw_module* model = ones(&group, NULL);
  gw_adamw_options o;
  gw_adamw_options_init(&o, sizeof o);
  assert_true(o.lr == 1e-3 && o.beta1 == 0.9 && o.beta2 == 0.999 && o.eps == 1e-8 && o.weight_decay == 0);
  gw_optimizer_rule rules[2];
  for (int i = 0; i < 2; ++i) gw_optimizer_rule_init(&rules[i], sizeof rules[i]);
  rules[0].pattern = "**";
  rules[0].frozen = 1;
  rules[1].pattern = "g.w"; /* the last match wins */
  rules[1].lr_scale = 2;
  rules[1].weight_decay = 0.5;
  o.lr = 0.1;
  o.rules = rules;
  o.rule_count = 2;
  gw_optimizer* opt = NULL;
  assert_ok(gw_adamw_create(model, &o, &opt));
  assert_ok(add(group, 1, 2, 3, 4));
  assert_ok(gw_optimizer_step(opt, NULL, NULL, NULL));
  /* In the first step m / sqrt(v) is 1, and the decay is decoupled: w (1 - lr wd) - lr. */
  assert_true(fabs(value(model, 2) - (1 - 0.2 * 0.5 - 0.2)) < 1e-7);
  gw_parameter* w = NULL;
  gw_view first, second;
  assert_ok(gw_module_find_parameter(model, "g.w", &w));
  assert_ok(gw_parameter_state(w, opt, "exp_avg", &first));
  assert_ok(gw_parameter_state(w, opt, "exp_avg_sq", &second));
  assert_true(near(at(&first, 1), 0.1 * 2) && fabs(at(&second, 1) - 0.001 * 4) < 1e-12);
  gw_parameter_release(w);
  gw_optimizer_release(opt);
  gw_module_release(model);
  gw_shard_group_release(group);
}

static void schedules_warm_up_and_decay(void** state) {
  (void)state;
  gw_shard_group* group = NULL;
  gw_module* model = ones(&group, NULL);
  gw_adamw_options o;
  gw_adamw_options_init(&o, sizeof o);
  o.lr = 1;
  o.schedule = GW_COSINE;
  o.warmup_steps = 2;
  o.total_steps = 4;
  o.last_lr_ratio = 0.1;
  gw_optimizer* opt = NULL;
  assert_ok(gw_adamw_create(model, &o, &opt));
  double lr[6];
  for (int i = 0; i < 6; ++i) {
    assert_ok(gw_optimizer_lr(opt, &lr[i]));
    assert_ok(gw_optimizer_step(opt, NULL, NULL, NULL));
  }
  assert_true(lr[0] > 0 && lr[0] < lr[1] && lr[1] <= 1 && lr[3] < lr[2] && near(lr[5], 0.1));
  gw_optimizer_release(opt);
  gw_module_release(model);
  gw_shard_group_release(group);
}

static void clips(rank* me) {
  gw_gangs* gangs = NULL;
  gw_shard_group* group = NULL;
  EXPECT_OK(gw_gangs_create(me->gang, NULL, &gangs));
  gw_module* model = ones(&group, gangs);
  EXPECT(model != NULL);
  double norm = 0;
  EXPECT_OK(add(group, 3, 0, 0, 4)); /* is summed over the ranks */
  EXPECT_OK(gw_clip_grad_norm(model, 1, 2, NULL, &norm));
  EXPECT(near(norm, 5.0 * me->size));
  EXPECT_OK(gw_clip_grad_norm(model, 100, INFINITY, NULL, &norm));
  EXPECT(fabs(norm - 0.8) < 1e-5);
  EXPECT_OK(gw_clip_grad_norm(model, 100, 1, NULL, &norm));
  EXPECT(fabs(norm - 1.4) < 1e-5);
  EXPECT_OK(gw_zero_grad(model, NULL));
  EXPECT_OK(gw_clip_grad_norm(model, 1, 2, NULL, &norm));
  EXPECT(norm == 0);
  EXPECT_REFUSED(gw_clip_grad_norm(model, 0, 2, NULL, &norm), "max_norm is 0");
  EXPECT_REFUSED(gw_clip_grad_norm(model, 1, 0, NULL, &norm), "p = 0");
  EXPECT_REFUSED(gw_clip_grad_norm(model, 1, 2, NULL, NULL), "out_norm is null");
  EXPECT_REFUSED(gw_clip_grad_norm(NULL, 1, 2, NULL, &norm), "model is null");
  EXPECT_REFUSED(gw_zero_grad(NULL, NULL), "model is null");
  /* All ranks get the refusal of one rank's options. */
  gw_optimizer* opt = NULL;
  gw_step_options s;
  gw_step_options_init(&s, sizeof s);
  EXPECT_OK(gw_sgd_create(model, NULL, &opt));
  if (me->index == me->size - 1) s.struct_size = 5;
  EXPECT_REFUSED(gw_optimizer_step(opt, &s, NULL, NULL), "struct_size is 5");
  EXPECT_OK(gw_optimizer_step(opt, NULL, NULL, NULL));
  gw_optimizer_release(opt);
  gw_module_release(model);
  gw_shard_group_release(group);
  EXPECT_OK(gw_gangs_shutdown(gangs, -1));
  gw_gangs_release(gangs);
}

static void norms_are_of_all_shards(void** state) {
  (void)state;
  for (int32_t n = 1; n <= 3; ++n) run_ranks(n, clips, NULL);
}

static void bad_options_are_refused(void** state) {
  (void)state;
  gw_shard_group* group = NULL;
  gw_module *model = ones(&group, NULL), *described = NULL;
  gw_optimizer* opt = NULL;
  gw_adamw_options a;
  gw_sgd_options s;
  int64_t steps;
  double lr;
#define REFUSED_WITH(field, value, part)                  \
  gw_adamw_options_init(&a, sizeof a);                    \
  a.field = value;                                        \
  assert_refused(gw_adamw_create(model, &a, &opt), part); \
  assert_null(opt)
  REFUSED_WITH(lr, -1, "lr = -1");
  REFUSED_WITH(beta1, 1, "beta1 = 1");
  REFUSED_WITH(beta2, -0.5, "beta2 = -0.5");
  REFUSED_WITH(eps, -1, "eps = -1");
  REFUSED_WITH(weight_decay, -2, "weight_decay = -2");
  REFUSED_WITH(schedule, 6, "schedule is 6");
  REFUSED_WITH(schedule, GW_COSINE, "total_steps = 0");
  REFUSED_WITH(warmup_steps, -1, "warmup_steps = -1");
  REFUSED_WITH(moment_dtype, GW_I8, "moment_dtype = i8");
  REFUSED_WITH(rule_count, 1, "rules is null");
#undef REFUSED_WITH
  gw_optimizer_rule rule;
  gw_optimizer_rule_init(&rule, sizeof rule);
  gw_sgd_options_init(&s, sizeof s);
  s.rules = &rule;
  s.rule_count = 1;
  assert_refused(gw_sgd_create(model, &s, &opt), "pattern is null");
  gw_sgd_options_init(&s, sizeof s);
  s.momentum = -1;
  assert_refused(gw_sgd_create(model, &s, &opt), "momentum = -1");
  assert_ok(gw_linear_create(2, 2, 0, &described));
  assert_refused_as(gw_adamw_create(described, NULL, &opt), GW_E_INVALID_STATE,
                    "gw_parallelize or gw_module_materialize");
  assert_refused_as(gw_sgd_create(described, NULL, &opt), GW_E_INVALID_STATE,
                    "gw_parallelize or gw_module_materialize");
  assert_refused(gw_adamw_create(NULL, NULL, &opt), "model is null");
  assert_refused(gw_adamw_create(model, NULL, NULL), "out_optimizer is null");
  assert_refused(gw_sgd_create(NULL, NULL, &opt), "model is null");
  assert_refused(gw_sgd_create(model, NULL, NULL), "out_optimizer is null");
  assert_refused(gw_optimizer_steps(NULL, &steps), "optimizer is null");
  assert_refused(gw_optimizer_lr(NULL, &lr), "optimizer is null");
  assert_refused(gw_optimizer_set_lr(NULL, 1), "optimizer is null");
  assert_refused(gw_optimizer_loss_scale(NULL, &lr), "optimizer is null");
  assert_refused(gw_optimizer_set_loss_scale(NULL, 1), "optimizer is null");
  assert_refused(gw_optimizer_swap_ema(NULL, NULL), "optimizer is null");
  assert_refused(gw_optimizer_step(NULL, NULL, NULL, NULL), "optimizer is null");
  assert_ok(gw_sgd_create(model, NULL, &opt));
  assert_refused(gw_optimizer_steps(opt, NULL), "out_steps is null");
  assert_refused(gw_optimizer_lr(opt, NULL), "out_lr is null");
  assert_refused(gw_optimizer_loss_scale(opt, NULL), "out_scale is null");
  gw_optimizer_release(opt);
  gw_module_release(described);
  gw_module_release(model);
  gw_shard_group_release(group);
  gw_optimizer_rule_init(NULL, 0);
  gw_adamw_options_init(NULL, 0);
  gw_sgd_options_init(NULL, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      test_on_device(sgd_steps_by_the_formula), test_on_device(adamw_steps_by_the_formula),
      test_on_device(schedules_warm_up_and_decay), test_on_device(norms_are_of_all_shards),
      test_on_device(bad_options_are_refused)};
  return cmocka_run_group_tests_name("capi_optim", tests, NULL, NULL);
}

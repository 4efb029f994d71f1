#include "ones.h"

/* What the callbacks have seen. */
typedef struct seen {
  int steps, freed, fails, wrong;
  double lr, weight_decay;
} seen;

static void free_seen(void* user) { ++((seen*)user)->freed; }

/* value -= lr (gradient + weight_decay value + velocity), velocity += gradient */
static gw_status step(void* user, const gw_optimizer_call* call) {
  seen* s = user;
  ++s->steps;
  if (s->fails) return gw_error_set("no more steps"), GW_E_CALLER;
  s->wrong += strcmp(call->name, "g.w") != 0 || call->state_count != 1 || call->stream != NULL ||
              call->value->ndim != 1 || call->value->shape[0] != 4 || call->step != s->steps;
  s->lr = call->lr;
  s->weight_decay = call->weight_decay;
  double *value = call->value->data, *velocity = call->states[0].data;
  const double* gradient = call->gradient->data;
  for (int i = 0; i < 4; ++i) {
    value[i] -= call->lr * (gradient[i] + call->weight_decay * value[i] + velocity[i]);
    velocity[i] += gradient[i];
  }
  return GW_OK;
}

static gw_optimizer* make(gw_module* model, seen* s, double ema_decay) {
  static const char* const states[] = {"velocity"};
  gw_custom_optimizer_options o;
  gw_custom_optimizer_options_init(&o, sizeof o);
  assert_true(o.lr == 1e-3 && o.weight_decay == 0 && o.initial_loss_scale == 65536);
  o.states = states;
  o.state_count = 1;
  o.step = step;
  o.user = s;
  o.free_user = free_seen;
  o.lr = 0.5;
  o.ema_decay = ema_decay;
  gw_optimizer* opt = NULL;
  assert_ok(gw_custom_optimizer_create(model, &o, &opt));
  return opt;
}

static void the_callback_steps_values_and_states(void** state) {
  (void)state;
  gw_shard_group* group = NULL;
  gw_module* model = ones(&group, NULL);
  seen s = {0};
  gw_optimizer* opt = make(model, &s, 0);
  gw_step_options options;
  gw_step_options_init(&options, sizeof options);
  options.scale = 0.5; /* the callback gets the scaled gradient */
  assert_ok(add(group, 2, 4, 6, 8));
  assert_ok(gw_optimizer_step(opt, &options, NULL, NULL));
  assert_true(near(value(model, 1), 1 - 0.5 * 2));
  assert_ok(add(group, 2, 4, 6, 8));
  assert_ok(gw_optimizer_step(opt, &options, NULL, NULL));
  assert_true(near(value(model, 1), 0 - 0.5 * (2 + 2)));
  assert_int_equal(s.steps, 2);
  assert_int_equal(s.wrong, 0);
  assert_true(s.lr == 0.5 && s.weight_decay == 0);
  gw_parameter* w = NULL;
  gw_view view;
  assert_ok(gw_module_find_parameter(model, "g.w", &w));
  assert_ok(gw_parameter_state(w, opt, "velocity", &view));
  assert_true(near(at(&view, 1), 4));
  gw_parameter_release(w);
  s.fails = 1;
  assert_ok(add(group, 1, 1, 1, 1));
  assert_refused_as(gw_optimizer_step(opt, NULL, NULL, NULL), GW_E_CALLER, "its step callback returned");
  s.fails = 0; /* a model of one rank stays usable */
  s.steps = 2;
  assert_ok(gw_optimizer_step(opt, NULL, NULL, NULL));
  assert_int_equal(s.freed, 0);
  gw_optimizer_release(opt);
  assert_int_equal(s.freed, 1);
  gw_module_release(model);
  gw_shard_group_release(group);
}

static gw_status tenth(void* user, int64_t step_number, double* out_factor) {
  if (((seen*)user)->fails) return GW_E_CALLER;
  *out_factor = 0.1 * (double)step_number;
  return GW_OK;
}

static void a_schedule_of_the_callers_gives_the_rate(void** state) {
  (void)state;
  gw_shard_group* group = NULL;
  gw_module* model = ones(&group, NULL);
  gw_sgd_options o;
  gw_sgd_options_init(&o, sizeof o);
  o.lr = 2;
  gw_optimizer* opt = NULL;
  assert_ok(gw_sgd_create(model, &o, &opt));
  seen first = {0}, second = {0};
  double lr = 0;
  assert_ok(gw_optimizer_set_schedule(opt, tenth, &first, free_seen));
  assert_ok(gw_optimizer_set_schedule(opt, tenth, &second, free_seen));
  assert_int_equal(first.freed, 1);
  assert_ok(gw_optimizer_lr(opt, &lr));
  assert_true(near(lr, 0.2));
  assert_ok(gw_optimizer_step(opt, NULL, NULL, NULL));
  assert_ok(gw_optimizer_lr(opt, &lr));
  assert_true(near(lr, 0.4));
  second.fails = 1;
  assert_refused_as(gw_optimizer_step(opt, NULL, NULL, NULL), GW_E_CALLER, "its schedule callback returned");
  second.fails = 0;
  assert_ok(gw_optimizer_step(opt, NULL, NULL, NULL));
  gw_optimizer_release(opt);
  assert_int_equal(second.freed, 1);
  gw_module_release(model);
  gw_shard_group_release(group);
}

static void averages_are_swapped_and_swapped_back(void** state) {
  (void)state;
  gw_shard_group* group = NULL;
  gw_module* model = ones(&group, NULL);
  seen s = {0};
  gw_optimizer* opt = make(model, &s, 0.5);
  assert_refused_as(gw_optimizer_swap_ema(opt, NULL), GW_E_INVALID_STATE,
                    "no averages before the first step");
  for (int i = 0; i < 2; ++i) {
    assert_ok(add(group, 2, 2, 2, 2));
    assert_ok(gw_optimizer_step(opt, NULL, NULL, NULL));
  }
  /* The values were 0 and then -2. */
  assert_true(near(value(model, 0), -2));
  assert_ok(gw_optimizer_swap_ema(opt, NULL));
  assert_true(near(value(model, 0), -1));
  assert_refused_as(gw_optimizer_step(opt, NULL, NULL, NULL), GW_E_INVALID_STATE, "hold their averages");
  assert_ok(gw_optimizer_swap_ema(opt, NULL));
  assert_true(near(value(model, 0), -2));
  gw_parameter* w = NULL;
  gw_view view;
  assert_ok(gw_module_find_parameter(model, "g.w", &w));
  assert_ok(gw_parameter_state(w, opt, "ema", &view));
  assert_true(near(at(&view, 3), -1));
  gw_parameter_release(w);
  gw_optimizer_release(opt);
  gw_module_release(model);
  gw_shard_group_release(group);
}

static void bad_options_are_refused_and_the_object_is_freed(void** state) {
  (void)state;
  gw_shard_group* group = NULL;
  gw_module* model = ones(&group, NULL);
  static const char* const twice[] = {"m", "m"};
  static const char* const none[] = {NULL};
  gw_custom_optimizer_options o;
  gw_optimizer* opt = NULL;
  seen s = {0};
  int refused = 0;
#define REFUSED(set, part)                                           \
  gw_custom_optimizer_options_init(&o, sizeof o);                    \
  o.step = step, o.user = &s, o.free_user = free_seen;               \
  set;                                                               \
  assert_refused(gw_custom_optimizer_create(model, &o, &opt), part); \
  assert_null(opt);                                                  \
  assert_int_equal(s.freed, ++refused)
  REFUSED(o.step = NULL, "options.step is null");
  REFUSED((o.states = twice, o.state_count = 2), "states[0] is \"m\", as another state is");
  REFUSED((o.states = none, o.state_count = 1), "options.states[0] is null");
  REFUSED(o.state_count = 1, "options.states is null");
  REFUSED(o.lr = -1, "lr = -1");
  REFUSED(o.ema_decay = 1, "ema_decay = 1");
#undef REFUSED
  gw_custom_optimizer_options_init(&o, sizeof o);
  o.step = step;
  assert_refused(gw_custom_optimizer_create(model, NULL, &opt), "options is null");
  assert_refused(gw_custom_optimizer_create(NULL, &o, &opt), "model is null");
  assert_refused(gw_custom_optimizer_create(model, &o, NULL), "out_optimizer is null");
  assert_ok(gw_custom_optimizer_create(model, &o, &opt));
  assert_refused(gw_optimizer_set_schedule(opt, NULL, &s, free_seen), "factor is null");
  assert_int_equal(s.freed, ++refused);
  assert_refused(gw_optimizer_set_schedule(NULL, tenth, &s, free_seen), "optimizer is null");
  assert_int_equal(s.freed, ++refused);
  gw_optimizer_release(opt);
  gw_module_release(model);
  gw_shard_group_release(group);
  gw_custom_optimizer_options_init(NULL, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(the_callback_steps_values_and_states),
                                     cmocka_unit_test(a_schedule_of_the_callers_gives_the_rate),
                                     cmocka_unit_test(averages_are_swapped_and_swapped_back),
                                     cmocka_unit_test(bad_options_are_refused_and_the_object_is_freed)};
  return cmocka_run_group_tests_name("capi_custom_optimizer", tests, NULL, NULL);
}

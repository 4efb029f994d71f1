/* What a program of a run uses besides steps: an optimizer by name, the memory of a plan, and metrics. */
#include "refusals.h"

static gw_module* trained(const char* kind, const char* const names[], const char* const values[],
                          size_t count, double* out_loss) {
  gw_module* model = materialized_llama();
  gw_optimizer* opt = NULL;
  small_batch b;
  fill_batch(&b, 2, 0);
  gw_step_result result;
  gw_step_result_init(&result, sizeof result);
  if (kind != NULL) {
    assert_ok(gw_optimizer_create(model, kind, names, values, count, &opt));
  } else {
    gw_adamw_options o;
    gw_adamw_options_init(&o, sizeof o);
    o.lr = 0.02;
    o.beta2 = 0.95;
    o.schedule = GW_COSINE;
    o.warmup_steps = 1;
    o.total_steps = 10;
    o.last_lr_ratio = 0.1;
    o.moment_dtype = GW_BF16;
    assert_ok(gw_adamw_create(model, &o, &opt));
  }
  for (int i = 0; i < 3; ++i) assert_ok(gw_train_step(model, opt, &b.batch, NULL, NULL, &result));
  *out_loss = result.loss;
  gw_optimizer_release(opt);
  return model;
}

static void an_optimizer_by_name_steps_as_that_of_its_struct(void** state) {
  (void)state;
  const char* const names[] = {"lr",          "beta2",         "schedule",    "warmup_steps",
                               "total_steps", "last_lr_ratio", "moment_dtype"};
  const char* const values[] = {"0.02", "0.95", "cosine", "1", "10", "1e-1", "bf16"};
  double by_name = 0, by_struct = 1, by_default = 1;
  gw_module_release(trained("adamw", names, values, 7, &by_name));
  gw_module_release(trained(NULL, NULL, NULL, 0, &by_struct));
  gw_module_release(trained("adamw", NULL, NULL, 0, &by_default));
  assert_true(by_name == by_struct);
  assert_true(by_name != by_default);
}

static void every_kind_of_optimizer_has_its_name(void** state) {
  (void)state;
  const char* const kinds[] = {"adafactor", "adamw", "adamw8bit", "lion", "muon", "sgd"};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; ++i) {
    gw_module* model = materialized_llama();
    gw_optimizer* opt = NULL;
    assert_ok(gw_optimizer_create(model, kinds[i], NULL, NULL, 0, &opt));
    gw_optimizer_release(opt);
    gw_module_release(model);
  }
}

static void wrong_settings_are_named(void** state) {
  (void)state;
  gw_module* model = materialized_llama();
  gw_optimizer* opt = NULL;
  const char* name = "lr";
  const char* value = "fast";
#define BY_NAME(kind) gw_optimizer_create(model, kind, &name, &value, 1, &opt)
  ROW(BY_NAME("adam"), INVALID_ARGUMENT, "there is no optimizer \"adam\"; there are ");
  ROW(BY_NAME("adamw"), INVALID_ARGUMENT, "adamw: lr = fast is not a number");
  name = "beta3";
  ROW(BY_NAME("adamw"), INVALID_ARGUMENT, "adamw: there is no option beta3; there are lr, ");
  name = "schedule";
  ROW(BY_NAME("adamw"), INVALID_ARGUMENT, "adamw: schedule = fast is not one of constant, linear, cosine, ");
  name = "nesterov";
  ROW(BY_NAME("sgd"), INVALID_ARGUMENT, "sgd: nesterov = fast is not true or false");
  name = "moment_dtype";
  ROW(BY_NAME("lion"), INVALID_ARGUMENT, "lion: moment_dtype = fast is not f32 or bf16");
  name = "warmup_steps";
  value = "1.5";
  ROW(BY_NAME("adamw"), INVALID_ARGUMENT, "adamw: warmup_steps = 1.5 is not a whole number");
  name = "lr";
  value = "-1";
  ROW(BY_NAME("adamw"), INVALID_ARGUMENT, "lr = -1");
  const char* const twice[] = {"lr", "lr"};
  const char* const numbers[] = {"1", "2"};
  ROW(gw_optimizer_create(model, "adamw", twice, numbers, 2, &opt), INVALID_ARGUMENT,
      "adamw: lr is given twice");
  end_of_table();
  assert_null(opt);
  gw_module_release(model);
}

/* The plan of one rank counts what a training of one rank uses. */
static void a_plan_has_the_memory_of_the_training(void** state) {
  (void)state;
  const gw_decoder_options decoder = small_llama();
  gw_plan_options o;
  gw_plan_options_init(&o, sizeof o);
  o.decoder = &decoder;
  o.rows = 2;
  o.sequence = 4;
  gw_memory_use planned, used;
  gw_memory_use_init(&planned, sizeof planned);
  gw_memory_use_init(&used, sizeof used);
  int32_t rank = -1;
  assert_ok(gw_plan_memory(&o, &planned, &rank));
  assert_int_equal(rank, 0);

  gw_gangs* gangs = NULL;
  gw_module* model = NULL;
  gw_optimizer* opt = NULL;
  small_batch b;
  fill_batch(&b, 2, 0);
  gw_step_options step;
  gw_step_options_init(&step, sizeof step);
  step.max_grad_norm = 1;
  assert_ok(gw_gangs_create(NULL, NULL, &gangs));
  assert_ok(gw_decoder_create(&decoder, &model));
  assert_ok(gw_parallelize(model, gangs, NULL));
  assert_ok(gw_adamw_create(model, NULL, &opt));
  for (int i = 0; i < 2; ++i) assert_ok(gw_train_step(model, opt, &b.batch, &step, NULL, NULL));
  assert_ok(gw_module_memory(model, &used));
  assert_true(used.optimizer > 0 && planned.optimizer == used.optimizer);
  assert_true(planned.master + planned.region_rows == used.master + used.region_rows);
  assert_true(planned.activations == used.activations);
  gw_optimizer_release(opt);
  gw_module_release(model);
  gw_gangs_release(gangs);
}

static void a_plan_that_cannot_be_is_refused(void** state) {
  (void)state;
  const gw_decoder_options decoder = small_llama();
  gw_plan_options o;
  gw_memory_use m;
  gw_plan_options_init(&o, sizeof o);
  gw_memory_use_init(&m, sizeof m);
  ROW(gw_plan_memory(&o, &m, NULL), INVALID_ARGUMENT, "options.decoder is null");
  o.decoder = &decoder;
  o.ranks = 0;
  ROW(gw_plan_memory(&o, &m, NULL), INVALID_ARGUMENT, "options.ranks is 0, below 1");
  gw_mesh_options mesh;
  gw_mesh_options_init(&mesh, sizeof mesh);
  mesh.tp = 3;
  o.mesh = &mesh;
  o.ranks = 4;
  ROW(gw_plan_memory(&o, &m, NULL), INVALID_ARGUMENT, "tp 3");
  end_of_table();
}

static gw_status sink_sees(void* user, const gw_metrics_row* row) {
  *(gw_metrics_row*)user = *row;
  return GW_OK;
}
static gw_status sink_fails(void* user, const gw_metrics_row* row) {
  (void)user;
  (void)row;
  return GW_E_NOT_FOUND;
}

static void metrics_give_each_row_and_continue(void** state) {
  (void)state;
  gw_module* model = materialized_llama();
  gw_metrics_row seen, latest;
  gw_metrics_row_init(&latest, sizeof latest);
  gw_metrics_options o;
  gw_metrics_options_init(&o, sizeof o);
  o.every = 2;
  o.sink = sink_sees;
  o.user = &seen;
  gw_metrics* metrics = NULL;
  assert_ok(gw_metrics_create(model, &o, &metrics));
  gw_step_result result;
  gw_step_result_init(&result, sizeof result);
  result.loss = 1.5;
  result.tokens = 10;
  result.seconds = 2;
  gw_metrics_step step;
  gw_metrics_step_init(&step, sizeof step);
  step.samples = 5;
  int64_t rows = -1;
  assert_ok(gw_metrics_log(metrics, &result, &step));
  assert_ok(gw_metrics_latest(metrics, &latest, &rows));
  assert_int_equal(rows, 0);
  assert_ok(gw_metrics_log_evaluation(metrics, 2.5, 1));
  assert_ok(gw_metrics_log(metrics, &result, &step));
  assert_ok(gw_metrics_latest(metrics, &latest, &rows));
  assert_int_equal(rows, 1);
  assert_true(seen.step == 2 && seen.tokens == 20 && seen.samples == 10 && seen.loss == 1.5);
  assert_true(seen.validation_loss == 2.5 && seen.tokens_per_second == 5 && seen.mfu != seen.mfu);
  assert_true(latest.step == seen.step && latest.memory == seen.memory);

  char position[128];
  size_t length = 0;
  assert_ok(gw_metrics_position(metrics, position, sizeof position, &length));
  assert_int_equal(length, strlen(position));
  assert_ptr_equal(gw_metrics_retain(metrics), metrics);
  gw_metrics_release(metrics);
  gw_metrics_release(metrics);
  o.every = 1;
  assert_ok(gw_metrics_create(model, &o, &metrics));
  assert_ok(gw_metrics_restore(metrics, position));
  assert_ok(gw_metrics_log(metrics, &result, NULL));
  assert_true(seen.step == 3 && seen.tokens == 30);
  assert_ok(gw_metrics_flush(metrics));
  ROW(gw_metrics_restore(metrics, "{}"), CORRUPT, "the position has no number \"step\"");
  gw_metrics_release(metrics);
  o.sink = sink_fails;
  assert_ok(gw_metrics_create(model, &o, &metrics));
  ROW(gw_metrics_log(metrics, &result, NULL), NOT_FOUND, "sink");
  end_of_table();
  gw_metrics_release(metrics);
  gw_module_release(model);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(an_optimizer_by_name_steps_as_that_of_its_struct),
                                     cmocka_unit_test(every_kind_of_optimizer_has_its_name),
                                     cmocka_unit_test(wrong_settings_are_named),
                                     cmocka_unit_test(a_plan_has_the_memory_of_the_training),
                                     cmocka_unit_test(a_plan_that_cannot_be_is_refused),
                                     cmocka_unit_test(metrics_give_each_row_and_continue)};
  return cmocka_run_group_tests_name("capi_run", tests, NULL, NULL);
}

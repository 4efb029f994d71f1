/* Adapters from C: applied, trained over ranks, saved, loaded, switched off and merged. */
#include "models.h"

#include <sys/stat.h>
#include <unistd.h>

static gw_lora_options lora_options(void) {
  gw_lora_options o;
  gw_lora_options_init(&o, sizeof o);
  o.patterns = "**.q_proj, **.down_proj";
  o.rank = 2;
  o.alpha = 4;
  o.seed = 7;
  return o;
}

static double loss_of(rank* me, gw_module* model) {
  small_batch b;
  gw_step_result result;
  fill_batch(&b, 2, 2 * me->index);
  gw_step_result_init(&result, sizeof result);
  return gw_eval_step(model, &b.batch, NULL, NULL, &result) == GW_OK ? result.loss : -1;
}

static void trains_saves_and_merges(rank* me) {
  const gw_decoder_options o = small_llama();
  const gw_lora_options lora = lora_options();
  gw_gangs* gangs = NULL;
  gw_module *model = NULL, *again = NULL, *plain = NULL;
  gw_optimizer* opt = NULL;
  gw_parallel_options p;
  gw_parallel_options_init(&p, sizeof p);
  p.master_dtype = GW_F64;
  EXPECT_OK(gw_gangs_create(me->gang, NULL, &gangs));
  EXPECT_OK(gw_decoder_create(&o, &model));
  EXPECT_OK(gw_lora_apply(model, &lora));
  EXPECT_OK(gw_parallelize(model, gangs, &p));
  EXPECT_OK(gw_sgd_create(model, NULL, &opt));
  const double base = loss_of(me, model);
  small_batch b;
  fill_batch(&b, 2, 2 * me->index);
  for (int i = 0; i < 3; ++i) EXPECT_OK(gw_train_step(model, opt, &b.batch, NULL, NULL, NULL));
  const double trained = loss_of(me, model);
  EXPECT(trained < base);
  EXPECT_OK(gw_lora_enable(model, 0));
  EXPECT(loss_of(me, model) == base);
  EXPECT_OK(gw_lora_enable(model, 1));
  EXPECT(loss_of(me, model) == trained);

  EXPECT_REFUSED(gw_lora_save(model, me->index == me->size - 1 ? NULL : me->user, NULL, NULL),
                 "folder is null");
  gw_save_options in_files;
  gw_save_options_init(&in_files, sizeof in_files);
  in_files.max_file_bytes = 2000;
  EXPECT_REFUSED(gw_lora_save(model, me->user, NULL, &in_files), "max_file_bytes is 2000");
  EXPECT_OK(gw_lora_save(model, me->user, "a-base", NULL));
  EXPECT_OK(gw_decoder_create(&o, &again));
  EXPECT_OK(gw_lora_apply_folder(again, me->user, 1));
  EXPECT_OK(gw_parallelize(again, gangs, &p));
  EXPECT_REFUSED(gw_lora_load(again, me->index == 0 ? NULL : me->user), "folder is null");
  EXPECT_OK(gw_lora_load(again, me->user));
  EXPECT(loss_of(me, again) == trained);

  EXPECT_OK(gw_lora_merge(model, NULL));
  const double merged = loss_of(me, model);
  EXPECT(merged - trained < 1e-12 && trained - merged < 1e-12);
  EXPECT_OK(gw_module_save(model, me->user, NULL));
  EXPECT_OK(gw_decoder_create(&o, &plain));
  EXPECT_OK(gw_parallelize(plain, gangs, &p));
  EXPECT_OK(gw_module_load(plain, me->user, NULL));
  EXPECT(loss_of(me, plain) == merged);
  gw_optimizer_release(opt);
  gw_module_release(model);
  gw_module_release(again);
  gw_module_release(plain);
  EXPECT_OK(gw_gangs_shutdown(gangs, -1));
  gw_gangs_release(gangs);
}

static void adapters_train_and_their_files_load(void** state) {
  (void)state;
  for (int32_t n = 1; n <= 2; ++n) {
    char folder[] = "/tmp/gangway-lora-XXXXXX", command[80];
    assert_non_null(mkdtemp(folder));
    run_ranks(n, trains_saves_and_merges, folder);
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
  }
}

static void wrong_calls_are_refused(void** state) {
  (void)state;
  const gw_decoder_options o = small_llama();
  gw_lora_options lora = lora_options();
  gw_module *model = NULL, *ready = materialized_llama();
  assert_ok(gw_decoder_create(&o, &model));
  lora.patterns = "**.q_proj,,**.v_proj";
  assert_refused(gw_lora_apply(model, &lora), "a pattern is empty");
  lora.patterns = "**.x_proj";
  assert_refused_as(gw_lora_apply(model, &lora), GW_E_NOT_FOUND, "**.x_proj");
  lora.patterns = "lm_head";
  assert_refused(gw_lora_apply(model, &lora), "lm_head");
  lora = lora_options();
  lora.dropout = 1;
  assert_refused(gw_lora_apply(model, &lora), "dropout is 1");
  assert_refused_as(gw_lora_apply_folder(model, "/nonexistent", 0), GW_E_IO, "/nonexistent");
  assert_refused_as(gw_lora_enable(model, 0), GW_E_INVALID_STATE, "no adapters");
  assert_ok(gw_lora_apply(model, NULL));
  assert_refused_as(gw_lora_apply(model, NULL), GW_E_INVALID_STATE, "adapters already");
  assert_ok(gw_lora_enable(model, 0));
  const char* const lacks = "call gw_parallelize or gw_module_materialize first";
  assert_refused_as(gw_lora_save(model, "/nowhere", NULL, NULL), GW_E_INVALID_STATE, lacks);
  assert_refused_as(gw_lora_load(model, "/nowhere"), GW_E_INVALID_STATE, lacks);
  assert_refused_as(gw_lora_merge(model, NULL), GW_E_INVALID_STATE, lacks);
  assert_refused_as(gw_lora_apply(ready, NULL), GW_E_INVALID_STATE, "before gw_parallelize");
  assert_refused_as(gw_lora_enable(ready, 1), GW_E_INVALID_STATE, "no adapters");
  assert_refused_as(gw_lora_merge(ready, NULL), GW_E_INVALID_STATE, "no adapters");
  assert_refused_as(gw_lora_save(ready, "/tmp/gangway-lora-none", NULL, NULL), GW_E_INVALID_STATE,
                    "no adapters");
  gw_module_release(model);
  gw_module_release(ready);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(adapters_train_and_their_files_load),
                                     cmocka_unit_test(wrong_calls_are_refused)};
  return cmocka_run_group_tests_name("capi_lora", tests, NULL, NULL);
}

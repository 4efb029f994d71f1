/* Layers in FP8 from C: chosen, trained over ranks, and refused. */
#include "models.h"

static gw_fp8_options mlps(gw_fp8_scaling scaling) {
  gw_fp8_options o;
  gw_fp8_options_init(&o, sizeof o);
  o.patterns = "model.layers.*.mlp.*";
  o.scaling = scaling;
  return o;
}

static void make_parallel(rank* me, gw_gangs* gangs, const gw_fp8_options* fp8, gw_module** out_model) {
  gw_decoder_options o = small_llama();
  gw_module* model = NULL;
  gw_parallel_options p;
  o.kv_heads = 2;
  gw_parallel_options_init(&p, sizeof p);
  p.seed = 3;
  EXPECT_OK(gw_decoder_create(&o, &model));
  *out_model = model;
  if (fp8 != NULL) EXPECT_OK(gw_fp8_apply(model, fp8));
  EXPECT_OK(gw_parallelize(model, gangs, &p));
}

static double loss_of(rank* me, gw_module* model) {
  small_batch b;
  gw_step_result result;
  fill_batch(&b, 2, 2 * me->index);
  gw_step_result_init(&result, sizeof result);
  return gw_eval_step(model, &b.batch, NULL, NULL, &result) == GW_OK ? result.loss : -1;
}

static void trains(rank* me) {
  gw_gangs* gangs = NULL;
  gw_mesh_options mesh;
  gw_mesh_options_init(&mesh, sizeof mesh);
  mesh.tp = me->size;
  EXPECT_OK(gw_gangs_create(me->gang, &mesh, &gangs));
  gw_module* plain = NULL;
  make_parallel(me, gangs, NULL, &plain);
  rank first = *me;
  first.index = 0; /* ranks of tp have one batch */
  for (gw_fp8_scaling scaling = GW_FP8_TENSOR; scaling <= GW_FP8_ROW; ++scaling) {
    const gw_fp8_options fp8 = mlps(scaling);
    gw_module* model = NULL;
    gw_optimizer* opt = NULL;
    make_parallel(me, gangs, &fp8, &model);
    EXPECT_OK(gw_sgd_create(model, NULL, &opt));
    const double base = loss_of(&first, plain), rounded = loss_of(&first, model);
    EXPECT(rounded != base && rounded - base < 0.05 * base && base - rounded < 0.05 * base);
    small_batch b;
    fill_batch(&b, 2, 0);
    for (int i = 0; i < 3; ++i) EXPECT_OK(gw_train_step(model, opt, &b.batch, NULL, NULL, NULL));
    EXPECT(loss_of(&first, model) < rounded);
    gw_optimizer_release(opt);
    gw_module_release(model);
  }
  gw_module_release(plain);
  EXPECT_OK(gw_gangs_shutdown(gangs, -1));
  gw_gangs_release(gangs);
}

static void layers_in_fp8_train(void** state) {
  (void)state;
  for (int32_t n = 1; n <= 2; ++n) run_ranks(n, trains, NULL);
}

static void wrong_calls_are_refused(void** state) {
  (void)state;
  const gw_decoder_options o = small_llama();
  gw_fp8_options fp8 = mlps(GW_FP8_TENSOR);
  gw_module *model = NULL, *ready = materialized_llama();
  assert_ok(gw_decoder_create(&o, &model));
  fp8.patterns = "**.q_proj,,**.v_proj";
  assert_refused(gw_fp8_apply(model, &fp8), "a pattern is empty");
  fp8.patterns = "**.x_proj";
  assert_refused_as(gw_fp8_apply(model, &fp8), GW_E_NOT_FOUND, "**.x_proj");
  fp8.patterns = "model.layers.*";
  assert_refused(gw_fp8_apply(model, &fp8), "only a Linear computes in FP8");
  fp8.patterns = "lm_head";
  assert_refused(gw_fp8_apply(model, &fp8), "lm_head");
  fp8 = mlps(3);
  assert_refused(gw_fp8_apply(model, &fp8), "scaling 3 is unknown");
  fp8 = mlps(GW_FP8_DELAYED);
  fp8.history = 0;
  assert_refused(gw_fp8_apply(model, &fp8), "history is 0");
  fp8.history = 4;
  assert_ok(gw_fp8_apply(model, &fp8));
  assert_refused_as(gw_fp8_apply(model, NULL), GW_E_INVALID_STATE, "computes in FP8 already");
  assert_refused_as(gw_fp8_apply(ready, NULL), GW_E_INVALID_STATE, "before gw_parallelize");
  gw_module_release(model);
  gw_module_release(ready);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(layers_in_fp8_train),
                                     cmocka_unit_test(wrong_calls_are_refused)};
  return cmocka_run_group_tests_name("capi_fp8", tests, NULL, NULL);
}

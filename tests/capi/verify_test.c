/* gw_verify from C: a decoder over ranks, planted errors, and wrong arguments. */
#include "models.h"

static void a_decoder_is_equal(rank* me) {
  gw_gangs* gangs = NULL;
  small_batch b;
  gw_verify_options o;
  gw_verify_result r;
  fill_batch(&b, 2, 2 * me->index);
  gw_verify_options_init(&o, sizeof o);
  gw_verify_result_init(&r, sizeof r);
  EXPECT_OK(gw_gangs_create(me->gang, NULL, &gangs));
  EXPECT_OK(gw_verify(gangs, build_small_llama, NULL, &b.batch, &o, &r));
  EXPECT(r.differing == 0 && r.parameters == 12 && r.difference == 0);
  EXPECT(r.loss - r.mesh_loss < 1e-12 && r.mesh_loss - r.loss < 1e-12 && r.grad_norm > 0);
  o.tolerance = 0;
  EXPECT_REFUSED(gw_verify(gangs, build_small_llama, NULL, &b.batch, &o, &r), "tolerance is 0");
  EXPECT_OK(gw_gangs_shutdown(gangs, -1));
  gw_gangs_release(gangs);
}

static void a_decoder_over_ranks_is_that_of_one(void** state) {
  (void)state;
  for (int32_t n = 1; n <= 2; ++n) run_ranks(n, a_decoder_is_equal, NULL);
}

/* The first call, whose model runs over the mesh, gives another eps than the second. */
static gw_status build_planted(void* user, gw_module** out_model) {
  gw_decoder_options o = small_llama();
  if ((*(int*)user)++ == 0) o.eps = 1e-2;
  return gw_decoder_create(&o, out_model);
}
static gw_status build_other(void* user, gw_module** out_model) {
  gw_decoder_options o = small_llama();
  o.layers = ++*(int*)user;
  return gw_decoder_create(&o, out_model);
}
static gw_status build_nothing(void* user, gw_module** out_model) {
  (void)user;
  *out_model = NULL;
  return GW_OK;
}
static gw_status build_fails(void* user, gw_module** out_model) {
  (void)user;
  (void)out_model;
  gw_error_set("the recipe is lost");
  return GW_E_NOT_FOUND;
}

static void planted_errors_and_wrong_builders_are_told(void** state) {
  (void)state;
  small_batch b;
  gw_verify_result r;
  int calls = 0;
  fill_batch(&b, 2, 0);
  gw_verify_result_init(&r, sizeof r);
  assert_refused_as(gw_verify(NULL, build_planted, &calls, &b.batch, NULL, &r), GW_E_MISMATCH,
                    "the gradient of lm_head.weight differs by");
  assert_int_equal(calls, 2);
  assert_int_equal(r.differing, r.parameters);
  assert_true(r.loss != r.mesh_loss && r.difference > 0);
  calls = 0;
  assert_refused(gw_verify(NULL, build_other, &calls, &b.batch, NULL, NULL), "another model the second time");
  assert_refused(gw_verify(NULL, build_nothing, NULL, &b.batch, NULL, NULL), "build gave no model");
  assert_refused_as(gw_verify(NULL, build_fails, NULL, &b.batch, NULL, NULL), GW_E_NOT_FOUND,
                    "the recipe is lost");
  assert_refused(gw_verify(NULL, NULL, NULL, &b.batch, NULL, NULL), "build is null");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_decoder_over_ranks_is_that_of_one),
                                     cmocka_unit_test(planted_errors_and_wrong_builders_are_told)};
  return cmocka_run_group_tests_name("capi_verify", tests, NULL, NULL);
}

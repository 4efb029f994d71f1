/* gw_verify and gw_verify_groups from C: a model over ranks, planted errors, and wrong arguments. */
#include <math.h>

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

/* --- shard groups --- */

enum { kSteps = 6 };
typedef enum wrong {
  kRight,
  kOwnDivisor,
  kOwnLoss,
  kF32,
  kNoReduce,
  kNoModel,
  kFails,
  kNaN,
  kNaNOfOne
} wrong;

/* The mean over the rows r = 1 to 6 of (r w)^2 / 2, with the parameter w, which is 1 at first. */
static gw_status step_of_groups(void* user, gw_gangs* gangs, double* out_loss, gw_module** out_model) {
  const wrong what = *(const wrong*)user;
  int32_t index = 0, count = 1;
  if (what == kFails) {
    gw_error_set("the rows are lost");
    return GW_E_NOT_FOUND;
  }
  if (gw_gangs_data_shard(gangs, &index, &count) != GW_OK) return GW_E_CALLER;
  gw_init_options init;
  gw_init_options_init(&init, sizeof init);
  init.kind = GW_INIT_ONES;
  gw_parameter_options w;
  gw_parameter_options_init(&w, sizeof w);
  w.name = "w";
  w.ndim = 1;
  w.dims[0] = 1;
  w.dtype = what == kF32 ? GW_F32 : GW_F64;
  w.initializer = &init;
  gw_shard_group* group = NULL;
  if (gw_shard_group_create(gangs, "g", &w, 1, NULL, 1, &group) != GW_OK) return GW_E_CALLER;
  double sum = 0;
  for (int32_t r = index * kSteps / count; r < (index + 1) * kSteps / count; ++r)
    sum += (r + 1.0) * (r + 1.0);
  double gradient = sum / kSteps * (what == kOwnDivisor ? count : 1), all = 0;
  const int64_t one = 1;
  gw_view view;
  gw_view_set(&view, &gradient, &one, 1, GW_F64);
  gw_gang* dp = NULL;
  gw_status status = gw_shard_group_unshard(group, NULL, NULL);
  if (status == GW_OK && what != kNoReduce) status = gw_shard_group_add_gradient(group, 0, &view, NULL);
  if (status == GW_OK) status = gw_shard_group_reshard(group, NULL);
  if (status == GW_OK) status = gw_shard_group_reduce(group, NULL);
  if (status == GW_OK) status = gw_gangs_get(gangs, "dp", &dp);
  if (status == GW_OK) status = gw_gang_all_sum(dp, sum / 2, &all);
  *out_loss = what == kOwnLoss ? sum / 2 * count / kSteps : all / kSteps;
  if (what == kNaN || (what == kNaNOfOne && index == 1)) *out_loss = NAN;
  if (status == GW_OK && what != kNoModel) status = gw_module_from_groups(&group, 1, out_model);
  gw_gang_release(dp);
  gw_shard_group_release(group);
  return status;
}

static gw_status verify_step(gw_gangs* gangs, wrong what, gw_verify_result* result) {
  return gw_verify_groups(gangs, step_of_groups, &what, NULL, result);
}

static void groups_are_verified(rank* me) {
  gw_gangs* gangs = NULL;
  gw_verify_result r;
  gw_verify_options o;
  wrong right = kRight;
  gw_verify_result_init(&r, sizeof r);
  gw_verify_options_init(&o, sizeof o);
  EXPECT_OK(gw_gangs_create(me->gang, NULL, &gangs));
  EXPECT_OK(verify_step(gangs, kRight, &r));
  EXPECT(r.parameters == 1 && r.differing == 0 && r.loss == r.mesh_loss && r.loss == 91.0 / 12);
  EXPECT_STATUS(verify_step(gangs, kOwnDivisor, &r), me->size == 1 ? GW_OK : GW_E_MISMATCH,
                me->size == 1 ? NULL : "the gradient of g.w differs by 1 of its norm");
  EXPECT_STATUS(verify_step(gangs, kOwnLoss, &r), me->size == 1 ? GW_OK : GW_E_MISMATCH,
                me->size == 1 ? NULL : "the loss is ");
  EXPECT_REFUSED(verify_step(gangs, kF32, NULL), "parameter g.w is f32");
  EXPECT_REFUSED(verify_step(gangs, kNoReduce, NULL), "all gradients are 0");
  EXPECT_REFUSED(verify_step(gangs, kNaN, NULL), "not finite, on one rank, too; give another batch");
  EXPECT_STATUS(verify_step(gangs, kNaNOfOne, &r), me->size == 1 ? GW_OK : GW_E_MISMATCH,
                me->size == 1 ? NULL : "rank 1 is the first whose loss is not finite");
  o.microbatches = 2;
  EXPECT_REFUSED(gw_verify_groups(gangs, step_of_groups, &right, &o, NULL), "microbatches is not 1");
  o.microbatches = 1;
  o.tolerance = -1;
  EXPECT_REFUSED(gw_verify_groups(gangs, step_of_groups, &right, &o, NULL), "tolerance is -1");
  EXPECT_REFUSED(gw_verify_groups(gangs, NULL, NULL, NULL, NULL), "step is null");
  /* What the function itself does wrong breaks the gangs. */
  EXPECT_STATUS(verify_step(gangs, kFails, NULL), GW_E_NOT_FOUND, "the rows are lost");
  gw_gangs_release(gangs);
}

static void a_step_with_groups_over_ranks_is_that_of_one(void** state) {
  (void)state;
  for (int32_t n = 1; n <= 2; ++n) run_ranks(n, groups_are_verified, NULL);
  assert_refused(verify_step(NULL, kNoModel, NULL), "step gave no model");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_decoder_over_ranks_is_that_of_one),
                                     cmocka_unit_test(planted_errors_and_wrong_builders_are_told),
                                     cmocka_unit_test(a_step_with_groups_over_ranks_is_that_of_one)};
  return cmocka_run_group_tests_name("capi_verify", tests, NULL, NULL);
}

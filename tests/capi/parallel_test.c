#include "models.h"

#include <math.h>

static gw_module* llama(void) {
  gw_module* model = NULL;
  const gw_decoder_options o = small_llama();
  assert_ok(gw_decoder_create(&o, &model));
  return model;
}

static gw_gangs* gangs_of(rank* me) {
  gw_gangs* gangs = NULL;
  return gw_gangs_create(me->gang, NULL, &gangs) == GW_OK ? gangs : NULL;
}

static void wraps(rank* me) {
  gw_gangs* gangs = gangs_of(me);
  const gw_decoder_options o = small_llama();
  gw_shard_options s;
  gw_shard_options_init(&s, sizeof s);
  /* In single calls: recomputation, the blocks, the root, memory. */
  gw_module *a = NULL, *b = NULL, *c = NULL;
  EXPECT_OK(gw_decoder_create(&o, &a));
  EXPECT_OK(gw_recompute(a, GW_RECOMPUTE_FULL, 0, 0));
  EXPECT_OK(gw_fully_shard(a, "model.layers.*", gangs, &s));
  EXPECT_STATUS(gw_recompute(a, GW_RECOMPUTE_FULL, 0, 0), GW_E_INVALID_STATE, "gw_fully_shard");
  EXPECT_STATUS(gw_fully_shard(a, "nothing.*", gangs, &s), GW_E_NOT_FOUND, "nothing");
  EXPECT_OK(gw_fully_shard(a, "", gangs, &s));
  EXPECT_OK(gw_module_materialize(a, gangs, 9, GW_F64));
  EXPECT_STATUS(gw_fully_shard(a, "", gangs, &s), GW_E_INVALID_STATE, "gw_fully_shard comes before");
  EXPECT_STATUS(gw_parallelize(a, gangs, NULL), GW_E_INVALID_STATE, "has its values already");
  /* The same values with replicated parameters. */
  EXPECT_OK(gw_decoder_create(&o, &b));
  EXPECT_OK(gw_replicate(b, gangs, NULL));
  EXPECT_OK(gw_module_materialize(b, gangs, 9, GW_F64));
  /* The same values with one call. */
  gw_parallel_options p;
  gw_parallel_options_init(&p, sizeof p);
  p.seed = 9;
  p.master_dtype = GW_F64;
  s.strategy = GW_SHARD_GRAD_OP;
  p.shard = &s;
  p.activation_offload = 1; /* changes nothing on a CPU */
  EXPECT_OK(gw_decoder_create(&o, &c));
  EXPECT_OK(gw_parallelize(c, gangs, &p));
  gw_module* const all[3] = {a, b, c};
  const char* name = "model.layers.0.mlp.up_proj.weight";
  double first[16 * 8], again[16 * 8];
  for (int i = 0; i < 3; ++i) {
    gw_parameter* parameter = NULL;
    gw_tensor* whole = NULL;
    gw_view view, own;
    EXPECT_OK(gw_module_find_parameter(all[i], name, &parameter));
    EXPECT_OK(gw_parameter_view(parameter, GW_PART_VALUE, &own));
    gw_parameter_info info;
    gw_parameter_info_init(&info, sizeof info);
    EXPECT_OK(gw_parameter_describe(parameter, &info));
    EXPECT(own.shape[0] == info.last_row - info.first_row);
    EXPECT(i == 1 ? own.shape[0] == 16 : own.shape[0] < 16 || me->size == 1);
    if (me->size > 1 && i == 0)
      EXPECT_STATUS(gw_parameter_view(parameter, GW_PART_FULL_VALUE, &view), GW_E_INVALID_STATE, "sharded");
    EXPECT(own.shape[1] == 8); /* an earlier view stays valid when another part is viewed */
    EXPECT_OK(gw_parameter_gather(parameter, NULL, &whole));
    EXPECT_OK(gw_tensor_view(whole, &view));
    EXPECT(view.shape[0] == 16 && view.dtype == GW_F64);
    take(i == 0 ? first : again, &view, NULL);
    EXPECT(i == 0 || memcmp(first, again, sizeof first) == 0);
    gw_tensor_release(whole);
    gw_parameter_release(parameter);
  }
  for (int i = 0; i < 3; ++i) gw_module_release(all[i]);
  EXPECT_OK(gw_gangs_shutdown(gangs, -1));
  gw_gangs_release(gangs);
}

static void wrapping_changes_neither_names_nor_values(void** state) {
  (void)state;
  for (int32_t n = 1; n <= 3; ++n) run_ranks(n, wraps, NULL);
}

static void refused_options(rank* me) {
  gw_gangs *gangs = gangs_of(me), *others = gangs_of(me);
  const gw_decoder_options o = small_llama();
  gw_parallel_options p;
  gw_shard_options s;
  gw_module* m = NULL;
  const int last = me->index == me->size - 1; /* only the last rank passes what is wrong */
  EXPECT_OK(gw_decoder_create(&o, &m));
#define REFUSED_WITH(field, value, code, part)             \
  gw_parallel_options_init(&p, sizeof p);                  \
  gw_shard_options_init(&s, sizeof s);                     \
  p.shard = &s;                                            \
  if (last) field = value;                                 \
  EXPECT_STATUS(gw_parallelize(m, gangs, &p), code, part); \
  EXPECT(last_error().rank == me->size - 1 || me->size == 1)
  REFUSED_WITH(s.strategy, 3, GW_E_INVALID_ARGUMENT, "strategy is 3");
  REFUSED_WITH(s.strategy, -1, GW_E_INVALID_ARGUMENT, "strategy is -1");
  REFUSED_WITH(s.reshard_after_forward, 4, GW_E_INVALID_ARGUMENT, "no factor of the");
  REFUSED_WITH(s.param_dtype, GW_I32, GW_E_INVALID_ARGUMENT, "param_dtype is i32");
  REFUSED_WITH(s.param_dtype, 0x22002, GW_E_INVALID_ARGUMENT, "dtype");
  REFUSED_WITH(s.reduce_dtype, GW_U8, GW_E_INVALID_ARGUMENT, "reduce_dtype is u8");
  REFUSED_WITH(p.master_dtype, GW_BF16, GW_E_INVALID_ARGUMENT, "bf16");
  REFUSED_WITH(p.recompute, 9, GW_E_INVALID_ARGUMENT, "kind is 9");
  REFUSED_WITH(s.bucket_cap_mb, -1, GW_E_INVALID_ARGUMENT, "bucket_cap_mb is -1");
  REFUSED_WITH(p.struct_size, 7, GW_E_INVALID_ARGUMENT, "struct_size is 7");
  REFUSED_WITH(s.rule_count, 1, GW_E_INVALID_ARGUMENT, "rules is null");
#undef REFUSED_WITH
  gw_parallel_options_init(&p, sizeof p);
  p.recompute = GW_RECOMPUTE_EVERY;
  p.recompute_every = 0;
  EXPECT_REFUSED(gw_parallelize(m, gangs, &p), "recompute every 0 blocks");
  p.recompute = GW_RECOMPUTE_RATIO;
  p.recompute_ratio = 1.5;
  EXPECT_REFUSED(gw_parallelize(m, gangs, &p), "ratio is 1.5");
  gw_dtype_rule rule;
  gw_dtype_rule_init(&rule, sizeof rule);
  gw_shard_options_init(&s, sizeof s);
  s.rules = &rule;
  s.rule_count = 1;
  EXPECT_REFUSED(gw_fully_shard(m, "", gangs, &s), "options.rules[0].pattern is null");
  gw_shard_options_init(&s, sizeof s);
  EXPECT_REFUSED(gw_fully_shard(m, last ? NULL : "", gangs, &s), "pattern is null");
  EXPECT_REFUSED(gw_fully_shard(last ? NULL : m, "", gangs, &s), "model is null");
  EXPECT_REFUSED(gw_replicate(last ? NULL : m, gangs, NULL), "model is null");
  EXPECT_REFUSED(gw_parallelize(last ? NULL : m, gangs, NULL), "model is null");
  EXPECT_REFUSED(gw_module_materialize(NULL, gangs, 0, 0), "model is null");
  EXPECT_REFUSED(gw_module_materialize(m, gangs, 0, GW_I8), "master_dtype is i8");
  EXPECT_REFUSED(gw_recompute(NULL, GW_RECOMPUTE_FULL, 1, 1), "model is null");
  EXPECT_REFUSED(gw_recompute(m, -1, 1, 1), "kind is -1");
  /* The refused calls have changed nothing: the model can still get other gangs. */
  EXPECT_OK(gw_parallelize(m, others, NULL));
  EXPECT_STATUS(gw_module_materialize(m, gangs, 0, 0), GW_E_INVALID_STATE, "other gangs");
  EXPECT_OK(gw_gang_async_error(me->gang));
  gw_module_release(m);
  EXPECT_OK(gw_gangs_shutdown(gangs, -1));
  EXPECT_OK(gw_gangs_shutdown(others, -1));
  gw_gangs_release(gangs);
  gw_gangs_release(others);
}

static void refusals_are_agreed_and_change_nothing(void** state) {
  (void)state;
  for (int32_t n = 1; n <= 3; ++n) run_ranks(n, refused_options, NULL);
}

static void other_axes(rank* me) {
  gw_gangs* gangs = NULL;
  gw_module* m = NULL;
  const gw_decoder_options o = small_llama();
  EXPECT_OK(gw_decoder_create(&o, &m));
  static const char* const says[3] = {"tp is 2, but the model is not split over tp; tensor_parallel",
                                      "pp is 2; parallelize",
                                      "cp is 2, but attention does not go over cp; context_parallel"};
  for (int axis = 0; axis < 3; ++axis) {
    EXPECT_OK(
        gw_gangs_create_parallel(me->gang, axis == 0 ? 2 : 1, axis == 1 ? 2 : 1, axis == 2 ? 2 : 1, &gangs));
    EXPECT_STATUS(gw_fully_shard(m, "", gangs, NULL), axis == 1 ? GW_E_NOT_SUPPORTED : GW_E_INVALID_STATE,
                  says[axis]);
    gw_gangs_release(gangs);
  }
  gw_module_release(m);
}

static void axes_that_a_model_is_not_made_for_are_refused(void** state) {
  (void)state;
  run_ranks(2, other_axes, NULL);
}

static void fake_gangs_do_not_train(void** state) {
  (void)state;
  gw_gang* fake = NULL;
  gw_gangs* gangs = NULL;
  gw_module* m = llama();
  gw_frame* frame = NULL;
  gw_tensor* out = NULL;
  size_t count = 0;
  small_batch batch;
  fill_batch(&batch, 1, 0);
  assert_ok(gw_gang_create_fake(0, 2, NULL, &fake));
  assert_ok(gw_gangs_create(fake, NULL, &gangs));
  assert_ok(gw_parallelize(m, gangs, NULL));
  assert_ok(gw_frame_create(m, NULL, &frame));
  assert_refused_as(gw_module_forward(m, &batch.input, 1, frame, NULL, &out, 1, &count), GW_E_NOT_SUPPORTED,
                    "fake");
  gw_frame_release(frame);
  gw_module_release(m);
  gw_gangs_release(gangs);
  gw_gang_release(fake);
}

/* --- shard groups --- */

static gw_status fill_rows(void* user, int64_t first, int64_t last, void* out, size_t count, gw_dtype dtype) {
  (void)count;
  (void)dtype;
  (void)user;
  for (int64_t i = first; i < last; ++i) ((float*)out)[i - first] = (float)i;
  return GW_OK;
}

enum { kRows = 5 };

static void group_of(gw_parameter_options p[2], gw_init_options* init, int* freed) {
  gw_init_options_init(init, sizeof *init);
  init->kind = GW_INIT_FILL;
  init->fill = fill_rows;
  init->user = freed;
  init->free_user = count_free;
  for (int i = 0; i < 2; ++i) gw_parameter_options_init(&p[i], sizeof p[i]);
  p[0].name = "w";
  p[0].ndim = 1;
  p[0].dims[0] = kRows;
  p[0].initializer = init;
  p[1].name = "frozen";
  p[1].ndim = 1;
  p[1].dims[0] = 2;
  p[1].initializer = init; /* one object for both parameters */
  p[1].frozen = 1;
}

static void shard_group(rank* me) {
  gw_gangs* gangs = gangs_of(me);
  gw_parameter_options p[2];
  gw_init_options init;
  int freed = 0;
  group_of(p, &init, &freed);
  gw_shard_group* g = NULL;
  EXPECT_OK(gw_shard_group_create(gangs, "own", p, 2, NULL, 1, &g));
  gw_view own, full, gradient, other;
  EXPECT_OK(gw_shard_group_view(g, 0, GW_PART_VALUE, &own));
  const int64_t rows = own.shape[0];
  EXPECT_STATUS(gw_shard_group_view(g, 1, GW_PART_GRADIENT, &other), GW_E_INVALID_STATE, "frozen");
  EXPECT_STATUS(gw_shard_group_view(g, 0, GW_PART_FULL_VALUE, &other), GW_E_INVALID_STATE, "unshard");
  EXPECT_OK(gw_shard_group_unshard(g, NULL, NULL));
  EXPECT_OK(gw_shard_group_view(g, 0, GW_PART_FULL_VALUE, &full));
  EXPECT(full.shape[0] == kRows && own.shape[0] == rows); /* both views are valid */
  for (int i = 0; i < kRows; ++i) EXPECT(at(&full, i) == i);
  float ones[kRows] = {1, 1, 1, 1, 1}, frozen[2];
  const int64_t shape[1] = {kRows}, two[1] = {2};
  gw_view_set(&gradient, ones, shape, 1, GW_F32);
  EXPECT_OK(gw_shard_group_add_gradient(g, 0, &gradient, NULL));
  EXPECT_STATUS(gw_shard_group_begin_update(g, NULL), GW_E_INVALID_STATE, "unsharded");
  EXPECT_STATUS(
      gw_shard_group_add_gradient(g, 1, &(gw_view){frozen, GW_DEVICE_CPU, 0, 1, GW_F32, two, NULL, 0}, NULL),
      GW_E_INVALID_STATE, "frozen");
  EXPECT_OK(gw_shard_group_view(g, 0, GW_PART_FULL_GRADIENT, &full));
  set_at(&full, 0, at(&full, 0) + 1); /* in place */
  EXPECT_OK(gw_shard_group_reshard(g, NULL));
  EXPECT_STATUS(gw_shard_group_begin_update(g, NULL), GW_E_INVALID_STATE, "\"own\" (own.w is its first of 2");
  EXPECT_OK(gw_shard_group_reduce(g, NULL));
  EXPECT_OK(gw_shard_group_view(g, 0, GW_PART_GRADIENT, &full));
  for (int64_t i = 0; i < rows; ++i) EXPECT(at(&full, i) == me->size * (at(&own, i) == 0 ? 2.0 : 1.0));
  /* A copy that stays valid, also after an asynchronous unshard. */
  gw_view into[2];
  gw_view_set(&into[0], NULL, shape, 1, GW_F32);
  gw_view_set(&into[1], NULL, two, 1, GW_F32);
  for (int i = 0; i < 2; ++i) EXPECT_OK(place_on(me->gang, &own, &into[i]));
  gw_work* work = NULL;
  EXPECT_OK(gw_shard_group_unshard_async(g, NULL, &work));
  EXPECT_OK(gw_work_wait(work, -1));
  gw_work_release(work);
  EXPECT_OK(gw_shard_group_unshard(g, into, NULL));
  EXPECT(at(&into[0], 4) == 4 && at(&into[1], 1) == 1);
  EXPECT_OK(gw_shard_group_reshard(g, NULL));
  /* The caller updates the values. */
  EXPECT_OK(gw_shard_group_begin_update(g, NULL));
  for (int64_t i = 0; i < rows; ++i) set_at(&own, i, at(&own, i) * 10);
  EXPECT_OK(gw_shard_group_end_update(g, NULL));
  EXPECT_OK(gw_shard_group_unshard(g, into, NULL));
  EXPECT(at(&into[0], 3) == 30);
  EXPECT_OK(gw_shard_group_reshard(g, NULL));
  /* Refusals. */
  into[0].shape = two;
  EXPECT_REFUSED(gw_shard_group_unshard(g, into, NULL), "into[0] has shape [2]");
  EXPECT_REFUSED(gw_shard_group_add_gradient(g, 0, &into[1], NULL), "gradient has shape [2]");
  EXPECT_REFUSED(gw_shard_group_add_gradient(g, 2, &gradient, NULL), "index is 2, the group has 2");
  gradient.dtype = GW_I32;
  EXPECT_REFUSED(gw_shard_group_add_gradient(g, 0, &gradient, NULL), "gradient is i32");
  EXPECT_REFUSED(gw_shard_group_add_gradient(g, 0, NULL, NULL), "gradient is null");
  EXPECT_REFUSED(gw_shard_group_view(g, 2, GW_PART_VALUE, &other), "index is 2");
  EXPECT_REFUSED(gw_shard_group_view(g, 0, 4, &other), "part is 4");
  EXPECT_REFUSED(gw_shard_group_view(g, 0, GW_PART_VALUE, NULL), "out_view is null");
  EXPECT_REFUSED(gw_shard_group_unshard_async(g, NULL, NULL), "out_work is null");
  for (int i = 0; i < 2; ++i) gw_gang_free(me->gang, into[i].data);
  /* A model of shard groups: optimizer and clipping. */
  gw_module* model = NULL;
  gw_shard_group* const twice[2] = {g, g};
  EXPECT_REFUSED(gw_module_from_groups(twice, 2, &model), "twice");
  EXPECT_OK(gw_module_from_groups(&g, 1, &model));
  size_t count = 0;
  EXPECT_OK(gw_module_parameter_count(model, &count));
  EXPECT(count == 2);
  gw_parameter* w = NULL;
  EXPECT_OK(gw_module_find_parameter(model, "own.w", &w));
  gw_parameter_release(w);
  EXPECT(gw_shard_group_retain(g) == g);
  gw_shard_group_release(g);
  gw_shard_group_release(g);
  EXPECT(freed == 0);
  gw_module_release(model);
  EXPECT(freed == 1);
  EXPECT_OK(gw_gangs_shutdown(gangs, -1));
  gw_gangs_release(gangs);
}

static void tied_group(rank* me) {
  gw_gangs* gangs = gangs_of(me);
  gw_parameter_options p[2];
  const char* const aliases[1] = {"head"};
  for (int i = 0; i < 2; ++i) {
    gw_parameter_options_init(&p[i], sizeof p[i]);
    p[i].name = i == 0 ? "w" : "count";
    p[i].dims[0] = 4;
    p[i].ndim = 1;
  }
  p[0].aliases = aliases;
  p[0].alias_count = 1;
  p[1].is_buffer = 1;
  p[1].dtype = GW_F64;
  gw_shard_group* g = NULL;
  gw_module* model = NULL;
  EXPECT_OK(gw_shard_group_create(gangs, "g", p, 2, NULL, 1, &g));
  EXPECT_OK(gw_module_from_groups(&g, 1, &model));
  const char* const names[3] = {"g.w", "g.head", "g.count"};
  for (int i = 0; i < 3; ++i) {
    gw_parameter* found = NULL;
    gw_parameter_info info;
    gw_parameter_info_init(&info, sizeof info);
    EXPECT_OK(gw_module_find_parameter(model, names[i], &found));
    EXPECT_OK(gw_parameter_describe(found, &info));
    EXPECT(info.is_buffer == (i == 2) && info.trainable == (i != 2));
    gw_parameter_release(found);
  }
  gw_module_release(model);
  gw_shard_group_release(g);
  p[0].aliases = NULL;
  EXPECT_REFUSED(gw_shard_group_create(gangs, "g", p, 2, NULL, 1, &g), "aliases is null");
  gw_gangs_release(gangs);
}

static void parameters_of_shard_groups_have_aliases_and_buffers(void** state) {
  (void)state;
  run_ranks(2, tied_group, NULL);
}

static void shard_groups_shard_add_and_reduce(void** state) {
  (void)state;
  for (int32_t n = 1; n <= 3; ++n) run_ranks(n, shard_group, NULL);
}

static void refused_groups(rank* me) {
  gw_gangs* gangs = gangs_of(me);
  gw_parameter_options p[2];
  gw_init_options init;
  int freed = 0, calls = 0;
  gw_shard_group* g = NULL;
  const int last = me->index == me->size - 1;
#define REFUSED_WITH(change, name, count, part)                                    \
  group_of(p, &init, &freed);                                                      \
  if (last) change;                                                                \
  EXPECT_REFUSED(gw_shard_group_create(gangs, name, p, count, NULL, 1, &g), part); \
  ++calls;                                                                         \
  EXPECT(g == NULL && freed == calls)
  REFUSED_WITH(p[1].name = NULL, "g", 2, "name is null");
  REFUSED_WITH(p[1].name = "w", "g", 2, "twice");
  REFUSED_WITH(p[1].dtype = GW_I32, "g", 2, "parameter frozen is i32");
  REFUSED_WITH(p[1].ndim = 10, "g", 2, "ndim 10");
  REFUSED_WITH(init.kind = 5, "g", 2, "kind is 5");
  REFUSED_WITH((void)0, last ? NULL : "g", 2, "name is null");
#undef REFUSED_WITH
  EXPECT_REFUSED(gw_shard_group_create(gangs, "g", p, 0, NULL, 1, &g), "0 parameters");
  EXPECT_REFUSED(gw_shard_group_create(gangs, "g", NULL, 2, NULL, 1, &g), "parameters is null");
  group_of(p, &init, &freed);
  EXPECT_REFUSED(gw_shard_group_create(gangs, "g", p, 2, NULL, 1, last ? NULL : &g), "out_group is null");
  EXPECT_OK(gw_gang_async_error(me->gang));
  gw_gangs_release(gangs);
}

static void refused_groups_free_initialisers_once(void** state) {
  (void)state;
  for (int32_t n = 1; n <= 2; ++n) run_ranks(n, refused_groups, NULL);
  gw_shard_group* g = NULL;
  gw_view view;
  gw_work* work = NULL;
  gw_module* model = NULL;
  assert_refused(gw_shard_group_unshard(NULL, NULL, NULL), "group is null");
  assert_refused(gw_shard_group_unshard_async(NULL, NULL, &work), "group is null");
  assert_refused(gw_shard_group_reshard(NULL, NULL), "group is null");
  assert_refused(gw_shard_group_view(NULL, 0, 0, &view), "group is null");
  assert_refused(gw_shard_group_add_gradient(NULL, 0, &view, NULL), "group is null");
  assert_refused(gw_shard_group_reduce(NULL, NULL), "group is null");
  assert_refused(gw_shard_group_begin_update(NULL, NULL), "group is null");
  assert_refused(gw_shard_group_end_update(NULL, NULL), "group is null");
  assert_refused(gw_module_from_groups(NULL, 0, &model), "0 shard groups");
  assert_refused(gw_module_from_groups(NULL, 1, &model), "groups is null");
  assert_refused(gw_module_from_groups(&g, 1, &model), "null");
  assert_refused(gw_module_from_groups(&g, 1, NULL), "out_model is null");
  gw_shard_group_release(NULL);
  assert_null(gw_shard_group_retain(NULL));
  gw_dtype_rule_init(NULL, 0);
  gw_shard_options_init(NULL, 0);
  gw_parallel_options_init(NULL, 0);
  gw_init_options_init(NULL, 0);
  gw_parameter_options_init(NULL, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {test_on_device(wrapping_changes_neither_names_nor_values),
                                     test_on_device(refusals_are_agreed_and_change_nothing),
                                     test_on_device(axes_that_a_model_is_not_made_for_are_refused),
                                     test_on_device(fake_gangs_do_not_train),
                                     test_on_device(shard_groups_shard_add_and_reduce),
                                     test_on_device(parameters_of_shard_groups_have_aliases_and_buffers),
                                     test_on_device(refused_groups_free_initialisers_once)};
  return cmocka_run_group_tests_name("capi_parallel", tests, NULL, NULL);
}

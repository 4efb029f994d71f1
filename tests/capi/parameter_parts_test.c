/* The parts of a parameter: values and gradients, local and whole, and what an export keeps alive. The suite
 * runs a second time with private shards (GANGWAY_SHARED_REGIONS=0), where whole values are gathered
 * copies. */
#include "dlpack.h"
#include "models.h"

enum { kRows = 5, kColumns = 2 };

static int regions(const rank* me) {
  const char* setting = getenv("GANGWAY_SHARED_REGIONS");
  return me->size > 1 && !on_gpus(test_device()) && (setting == NULL || strcmp(setting, "0") != 0);
}

/* Parameters w [5, 2] and never [3] of ones, and a frozen one, all in `dtype`. */
static gw_status make_group(gw_gangs* gangs, gw_strategy strategy, gw_dtype dtype,
                            gw_shard_group** out_group) {
  static const char* const names[3] = {"w", "never", "frozen"};
  gw_init_options init;
  gw_init_options_init(&init, sizeof init);
  init.kind = GW_INIT_ONES;
  gw_parameter_options p[3];
  for (int i = 0; i < 3; ++i) {
    gw_parameter_options_init(&p[i], sizeof p[i]);
    p[i].name = names[i];
    p[i].ndim = i == 0 ? 2 : 1;
    p[i].dims[0] = i == 0 ? kRows : 3;
    p[i].dims[1] = i == 0 ? kColumns : 0;
    p[i].dtype = dtype;
    p[i].initializer = &init;
    p[i].frozen = i == 2;
  }
  gw_shard_options s;
  gw_shard_options_init(&s, sizeof s);
  s.strategy = strategy;
  return gw_shard_group_create(gangs, "g", p, 3, &s, 1, out_group);
}

static int64_t elements(const gw_view* view) { return (int64_t)elements_of(view); }

enum { kMost = 16 * 11 };
static int all_are(const gw_view* view, double value) {
  double buffer[kMost];
  const gw_view here = taken(buffer, view);
  for (int64_t i = 0; i < elements(&here); ++i)
    if (at(&here, i) != value) return 0;
  return 1;
}

static void all_become(const gw_view* view, double value) {
  double buffer[kMost];
  const gw_view here = taken(buffer, view);
  for (int64_t i = 0; i < elements(&here); ++i) set_at(&here, i, value);
  give(view, buffer, NULL);
}

/* --- gradients --- */

/* Gradients of every dtype are added and summed over the ranks, and the update empties them. user: the
 * strategy. */
static void gradients_add(rank* me) {
  const gw_strategy strategy = *(const gw_strategy*)me->user;
  gw_gangs* gangs = NULL;
  gw_shard_group* g = NULL;
  gw_module* model = NULL;
  gw_optimizer* opt = NULL;
  gw_view view, gradient;
  EXPECT_OK(gw_gangs_create(me->gang, NULL, &gangs));
  EXPECT_OK(make_group(gangs, strategy, GW_F32, &g));
  EXPECT_OK(gw_module_from_groups(&g, 1, &model));
  gw_sgd_options o;
  gw_sgd_options_init(&o, sizeof o);
  o.lr = 1;
  EXPECT_OK(gw_sgd_create(model, &o, &opt));
  float f32[kRows * kColumns];
  double f64[kRows * kColumns];
  uint16_t bf16[kRows * kColumns];
  for (int i = 0; i < kRows * kColumns; ++i) {
    f32[i] = 1;
    f64[i] = 2;
    bf16[i] = 0x4080; /* 4 */
  }
  const int64_t shape[2] = {kRows, kColumns};
  for (int step = 0; step < 2; ++step) {
    EXPECT_OK(gw_shard_group_unshard(g, NULL, NULL));
    EXPECT_OK(gw_shard_group_view(g, 0, GW_PART_FULL_GRADIENT, &view));
    EXPECT(view.dtype == GW_F32 && elements(&view) == kRows * kColumns && all_are(&view, 0));
    gw_view_set(&gradient, f32, shape, 2, GW_F32);
    EXPECT_OK(gw_shard_group_add_gradient(g, 0, &gradient, NULL));
    gw_view_set(&gradient, f64, shape, 2, GW_F64);
    EXPECT_OK(gw_shard_group_add_gradient(g, 0, &gradient, NULL));
    gw_view_set(&gradient, bf16, shape, 2, GW_BF16);
    EXPECT_OK(gw_shard_group_add_gradient(g, 0, &gradient, NULL));
    EXPECT_OK(gw_shard_group_view(g, 0, GW_PART_FULL_GRADIENT, &view));
    EXPECT(all_are(&view, 7));
    EXPECT_STATUS(gw_shard_group_view(g, 2, GW_PART_FULL_GRADIENT, &view), GW_E_INVALID_STATE, "frozen");
    EXPECT_OK(gw_shard_group_reshard(g, NULL));
    EXPECT_STATUS(gw_shard_group_view(g, 0, GW_PART_FULL_GRADIENT, &view), GW_E_INVALID_STATE, "unshard");
    EXPECT_STATUS(gw_shard_group_view(g, 0, GW_PART_FULL_VALUE, &view), GW_E_INVALID_STATE, "unshard");
    /* The sums are reduced twice: reductions add up, and a gradient that nobody wrote is zero. */
    for (int times = 1; times <= 2; ++times) {
      EXPECT_OK(gw_shard_group_reduce(g, NULL));
      EXPECT_OK(gw_shard_group_view(g, 0, GW_PART_GRADIENT, &view));
      EXPECT(all_are(&view, 7.0 * me->size * times));
      EXPECT_OK(gw_shard_group_view(g, 1, GW_PART_GRADIENT, &view));
      EXPECT(all_are(&view, 0));
      EXPECT_OK(gw_shard_group_unshard(g, NULL, NULL));
      EXPECT_OK(gw_shard_group_view(g, 0, GW_PART_FULL_GRADIENT, &view));
      EXPECT(all_are(&view, 0)); /* reduce emptied it */
      gw_view_set(&gradient, f32, shape, 2, GW_F32);
      for (int i = 0; times == 1 && i < 7; ++i) EXPECT_OK(gw_shard_group_add_gradient(g, 0, &gradient, NULL));
      EXPECT_OK(gw_shard_group_reshard(g, NULL));
    }
    EXPECT_OK(gw_shard_group_reduce(g, NULL)); /* a full gradient that was shown may have been written */
    /* The local gradient is writable. The step uses what it contains, and empties it. */
    EXPECT_OK(gw_shard_group_view(g, 0, GW_PART_GRADIENT, &view));
    all_become(&view, 3);
    EXPECT_OK(gw_optimizer_step(opt, NULL, NULL, NULL));
    EXPECT_OK(gw_shard_group_view(g, 0, GW_PART_GRADIENT, &view));
    EXPECT(all_are(&view, 0));
    EXPECT_OK(gw_shard_group_view(g, 0, GW_PART_VALUE, &view));
    EXPECT(all_are(&view, 1.0 - 3 * (step + 1)));
    EXPECT_OK(gw_shard_group_view(g, 2, GW_PART_VALUE, &view));
    EXPECT(all_are(&view, 1));
  }
  gw_optimizer_release(opt);
  gw_module_release(model);
  gw_shard_group_release(g);
  gw_gangs_release(gangs);
}

static void gradients_add_up_and_are_emptied_by_the_step(void** state) {
  (void)state;
  for (gw_strategy s = GW_FULL_SHARD; s <= GW_NO_SHARD; ++s)
    for (int32_t n = 1; n <= 3; ++n) run_ranks(n, gradients_add, &s);
}

/* The same by a model's parameters. user: the strategy. */
static void parameters_gradients(rank* me) {
  gw_gangs* gangs = NULL;
  gw_module* model = NULL;
  gw_optimizer* opt = NULL;
  small_batch b;
  const gw_decoder_options o = small_llama();
  gw_parallel_options p;
  gw_shard_options s;
  gw_parallel_options_init(&p, sizeof p);
  gw_shard_options_init(&s, sizeof s);
  p.shard = &s;
  s.strategy = *(const gw_strategy*)me->user;
  EXPECT_OK(gw_gangs_create(me->gang, NULL, &gangs));
  EXPECT_OK(gw_decoder_create(&o, &model));
  EXPECT_OK(gw_parallelize(model, gangs, &p));
  gw_sgd_options so;
  gw_sgd_options_init(&so, sizeof so);
  so.lr = 0.5;
  EXPECT_OK(gw_sgd_create(model, &so, &opt));
  fill_batch(&b, 2, me->index);
  for (int step = 0; step < 2; ++step) {
    size_t count = 0;
    EXPECT_OK(gw_train_step(model, opt, &b.batch, NULL, NULL, NULL));
    EXPECT_OK(gw_module_parameter_count(model, &count));
    for (size_t i = 0; i < count; ++i) {
      gw_parameter* parameter = NULL;
      gw_view gradient, value;
      EXPECT_OK(gw_module_parameter(model, i, &parameter));
      EXPECT_OK(gw_parameter_view(parameter, GW_PART_GRADIENT, &gradient));
      EXPECT(all_are(&gradient, 0)); /* the step has emptied it */
      EXPECT_OK(gw_parameter_view(parameter, GW_PART_VALUE, &value));
      EXPECT(elements(&gradient) == elements(&value));
      float before[kMost], after[kMost];
      take(before, &value, NULL);
      all_become(&gradient, 2);
      EXPECT_OK(gw_optimizer_step(opt, NULL, NULL, NULL));
      take(after, &value, NULL);
      for (int64_t j = 0; j < elements(&value); ++j) EXPECT(after[j] == before[j] - 0.5f * 2);
      gw_parameter_release(parameter);
    }
  }
  gw_optimizer_release(opt);
  gw_module_release(model);
  gw_gangs_release(gangs);
}

static void a_parameters_gradient_is_zero_after_a_step_and_writable(void** state) {
  (void)state;
  for (gw_strategy s = GW_FULL_SHARD; s <= GW_NO_SHARD; ++s)
    for (int32_t n = 1; n <= most_ranks(); ++n) run_ranks(n, parameters_gradients, &s);
}

/* A whole gradient that exists outside of backward is zero, not what the last microbatch left in it. What is
 * added to it counts. user: the strategy. */
static void whole_gradients(rank* me) {
  const gw_strategy strategy = *(const gw_strategy*)me->user;
  gw_gangs* gangs = NULL;
  gw_module* model = NULL;
  gw_optimizer* opt = NULL;
  gw_parameter* p = NULL;
  gw_tensor* kept = NULL;
  gw_view whole, again;
  small_batch b;
  const gw_decoder_options o = small_llama();
  gw_parallel_options options;
  gw_shard_options shard;
  gw_parallel_options_init(&options, sizeof options);
  gw_shard_options_init(&shard, sizeof shard);
  options.shard = &shard;
  shard.strategy = strategy;
  fill_batch(&b, 2, me->index);
  EXPECT_OK(gw_gangs_create(me->gang, NULL, &gangs));
  EXPECT_OK(gw_decoder_create(&o, &model));
  EXPECT_OK(gw_parallelize(model, gangs, &options));
  EXPECT_OK(gw_sgd_create(model, NULL, &opt));
  EXPECT_OK(gw_train_step(model, opt, &b.batch, NULL, NULL, NULL));
  EXPECT_OK(gw_module_find_parameter(model, "lm_head.weight", &p));
  /* With several ranks it exists only from a backward to its reduction. */
  const int stays = me->size == 1;
  const gw_status status = gw_parameter_view(p, GW_PART_FULL_GRADIENT, &whole);
  EXPECT(status == (stays ? GW_OK : GW_E_INVALID_STATE));
  if (stays) {
    EXPECT(whole.shape[0] == 11 && all_are(&whole, 0));
    set_at(&whole, 0, 3);
    EXPECT_OK(gw_parameter_tensor(p, GW_PART_FULL_GRADIENT, &kept));
    EXPECT_OK(gw_tensor_view(kept, &again));
    /* the first view has made it part of the gradient */
    EXPECT(again.data == whole.data && at(&again, 0) == 3);
    gw_tensor_release(kept);
    EXPECT_OK(gw_zero_grad(model, NULL));
    EXPECT_OK(gw_parameter_view(p, GW_PART_FULL_GRADIENT, &whole));
    EXPECT(all_are(&whole, 0));
  }
  gw_parameter_release(p);
  gw_optimizer_release(opt);
  gw_module_release(model);
  gw_gangs_release(gangs);
}

static void a_whole_gradient_is_zero_after_a_step(void** state) {
  (void)state;
  for (gw_strategy s = GW_FULL_SHARD; s <= GW_NO_SHARD; ++s)
    for (int32_t n = 1; n <= 3; ++n) run_ranks(n, whole_gradients, &s);
}

/* --- exports --- */

static struct DLManagedTensorVersioned* export_of(gw_shard_group* g, gw_part part) {
  gw_tensor* tensor = NULL;
  struct DLManagedTensorVersioned* managed = NULL;
  if (gw_shard_group_tensor(g, 0, part, &tensor) != GW_OK) return NULL;
  gw_tensor_to_dlpack(tensor, &managed);
  gw_tensor_release(tensor);
  return managed;
}

static void exports(rank* me) {
  gw_gangs* gangs = NULL;
  gw_shard_group* g = NULL;
  gw_tensor* tensor = NULL;
  gw_view own, view;
  EXPECT_OK(gw_gangs_create(me->gang, NULL, &gangs));
  EXPECT_OK(make_group(gangs, GW_FULL_SHARD, GW_F32, &g));
  EXPECT_STATUS(gw_shard_group_tensor(g, 0, GW_PART_FULL_VALUE, &tensor), GW_E_INVALID_STATE, "unshard");
  EXPECT_STATUS(gw_shard_group_tensor(g, 2, GW_PART_GRADIENT, &tensor), GW_E_INVALID_STATE, "frozen");
  EXPECT_REFUSED(gw_shard_group_tensor(g, 3, GW_PART_VALUE, &tensor), "index is 3, the group has 3");
  EXPECT_REFUSED(gw_shard_group_tensor(g, 0, 4, &tensor), "part is 4");
  EXPECT_REFUSED(gw_shard_group_tensor(g, 0, GW_PART_VALUE, NULL), "out_tensor is null");
  EXPECT(tensor == NULL);
  EXPECT_OK(gw_shard_group_unshard(g, NULL, NULL));
  EXPECT_OK(gw_shard_group_tensor(g, 0, GW_PART_FULL_VALUE, &tensor));
  EXPECT(gw_tensor_is_read_only(tensor) == regions(me));
  gw_tensor_release(tensor);
  struct DLManagedTensorVersioned *value = export_of(g, GW_PART_FULL_VALUE),
                                  *gradient = export_of(g, GW_PART_FULL_GRADIENT);
  EXPECT(value != NULL && gradient != NULL);
  EXPECT((value->flags & 1) == (uint64_t)regions(me)); /* read-only, because all ranks share the pages */
  EXPECT((gradient->flags & 1) == 0);
  EXPECT(value->tensor.shape[0] == kRows && value->tensor.shape[1] == kColumns && all_are(&value->tensor, 1));
  all_become(&gradient->tensor, 5);
  EXPECT_OK(gw_shard_group_reshard(g, NULL));
  EXPECT(all_are(&value->tensor, 1) && all_are(&gradient->tensor, 5)); /* detached, but not freed */
  EXPECT_OK(gw_shard_group_reduce(g, NULL));
  EXPECT_OK(gw_shard_group_view(g, 0, GW_PART_GRADIENT, &view));
  EXPECT(all_are(&view, 5.0 * me->size)); /* what was written through the export counts */
  /* Second round: the library does not reuse the exported buffers. */
  EXPECT_OK(gw_shard_group_begin_update(g, NULL));
  EXPECT_OK(gw_shard_group_view(g, 0, GW_PART_VALUE, &own));
  all_become(&own, 9);
  EXPECT_OK(gw_shard_group_end_update(g, NULL));
  EXPECT_OK(gw_shard_group_unshard(g, NULL, NULL));
  EXPECT_OK(gw_shard_group_view(g, 0, GW_PART_FULL_VALUE, &view));
  EXPECT(all_are(&view, 9));
  /* The whole value of one rank, or of a shared region, is the parameter's own memory. */
  EXPECT(all_are(&value->tensor, regions(me) || me->size == 1 ? 9 : 1));
  EXPECT_OK(gw_shard_group_view(g, 0, GW_PART_FULL_GRADIENT, &view));
  EXPECT(all_are(&view, 0));
  EXPECT(all_are(&gradient->tensor, 5));
  EXPECT_OK(gw_shard_group_reshard(g, NULL));
  /* The exports outlive the group and the gangs. */
  gw_shard_group_release(g);
  gw_gangs_release(gangs);
  EXPECT(all_are(&value->tensor, regions(me) || me->size == 1 ? 9 : 1));
  value->deleter(value);
  gradient->deleter(gradient);
}

static void an_export_pins_its_buffer(void** state) {
  (void)state;
  for (int32_t n = 1; n <= 3; ++n) run_ranks(n, exports, NULL);
  gw_tensor* tensor = NULL;
  assert_refused(gw_shard_group_tensor(NULL, 0, GW_PART_VALUE, &tensor), "group is null");
}

/* Unshards into the caller's memory, which gets a copy that stays valid. */
static void copies(rank* me) {
  gw_gangs* gangs = NULL;
  gw_shard_group* g = NULL;
  const int64_t shape[2] = {kRows, kColumns}, three[1] = {3};
  gw_view into[3], own;
  EXPECT_OK(gw_gangs_create(me->gang, NULL, &gangs));
  EXPECT_OK(make_group(gangs, GW_FULL_SHARD, GW_F32, &g));
  EXPECT_OK(gw_shard_group_view(g, 0, GW_PART_VALUE, &own));
  for (int i = 0; i < 3; ++i) {
    gw_view_set(&into[i], NULL, i == 0 ? shape : three, i == 0 ? 2 : 1, GW_F32);
    EXPECT_OK(place_on(me->gang, &own, &into[i]));
  }
  EXPECT_OK(gw_shard_group_unshard(g, into, NULL));
  EXPECT_OK(gw_shard_group_reshard(g, NULL));
  EXPECT_OK(gw_shard_group_begin_update(g, NULL));
  EXPECT_OK(gw_shard_group_view(g, 0, GW_PART_VALUE, &own));
  all_become(&own, 9);
  EXPECT_OK(gw_shard_group_end_update(g, NULL));
  EXPECT(all_are(&into[0], 1));
  gw_shard_group_release(g);
  gw_gangs_release(gangs);
  EXPECT(all_are(&into[0], 1));
  for (int i = 0; i < 3; ++i) gw_gang_free(me->gang, into[i].data);
}

static void unshard_into_the_callers_memory_is_a_stable_copy(void** state) {
  (void)state;
  for (int32_t n = 1; n <= 3; ++n) run_ranks(n, copies, NULL);
}

/* user: a count of frees for each rank. */
static void leaves_in_flight(rank* me) {
  gw_gangs* gangs = NULL;
  gw_shard_group* g = NULL;
  gw_work* work = NULL;
  EXPECT_OK(gw_gangs_create(me->gang, NULL, &gangs));
  EXPECT_OK(make_group(gangs, GW_FULL_SHARD, GW_F32, &g));
  EXPECT_OK(gw_shard_group_unshard_async(g, NULL, &work));
  EXPECT_OK(gw_work_attach(work, (int*)me->user + me->index, count_free));
  gw_work_release(work);
  gw_shard_group_release(g);
  gw_gangs_release(gangs);
}

static void what_is_attached_to_a_gather_goes_with_the_rank_at_last(void** state) {
  (void)state;
  for (int32_t n = 1; n <= 3; ++n) {
    int freed[3] = {0, 0, 0};
    run_ranks(n, leaves_in_flight, freed);
    for (int32_t r = 0; r < n; ++r) assert_int_equal(freed[r], 1);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {test_on_device(gradients_add_up_and_are_emptied_by_the_step),
                                     test_on_device(a_parameters_gradient_is_zero_after_a_step_and_writable),
                                     test_on_device(a_whole_gradient_is_zero_after_a_step),
                                     test_on_device(an_export_pins_its_buffer),
                                     test_on_device(what_is_attached_to_a_gather_goes_with_the_rank_at_last),
                                     test_on_device(unshard_into_the_callers_memory_is_a_stable_copy)};
  return cmocka_run_group_tests_name("capi_parameter_parts", tests, NULL, NULL);
}

/* All ranks agree on refusals of set-up calls and steps: a bad argument of one rank is refused on every rank,
 * with that rank's code and text, and the gang goes on working. */
#include "models.h"

#include <sys/stat.h>
#include <unistd.h>

typedef struct scene {
  rank* me;
  const char* folder; /* has a saved model */
  gw_gangs* gangs;
  gw_module* ready; /* has memory */
  gw_optimizer* optimizer;
  gw_shard_group* group;
} scene;

static gw_module* llama(void) {
  gw_module* m = NULL;
  const gw_decoder_options o = small_llama();
  return gw_decoder_create(&o, &m) == GW_OK ? m : NULL;
}

/* --- the calls, each with a bad argument on one rank --- */

static gw_status create_gangs(scene* s, int bad) {
  gw_mesh_options o;
  gw_gangs* made = NULL;
  gw_mesh_options_init(&o, sizeof o);
  if (bad) o.tp = 7;
  const gw_status status = gw_gangs_create(s->me->gang, &o, &made);
  gw_gangs_release(made);
  return status;
}
static gw_status create_gangs_null(scene* s, int bad) {
  gw_gangs* made = NULL;
  const gw_status status = gw_gangs_create(s->me->gang, NULL, bad ? NULL : &made);
  gw_gangs_release(made);
  return status;
}
static gw_status create_parallel_null(scene* s, int bad) {
  gw_gangs* made = NULL;
  const gw_status status = gw_gangs_create_parallel(s->me->gang, 1, 1, 1, bad ? NULL : &made);
  gw_gangs_release(made);
  return status;
}
static gw_status create_fsdp_null(scene* s, int bad) {
  gw_gangs* made = NULL;
  const gw_status status = gw_gangs_create_fsdp(s->gangs, 0, bad ? NULL : &made);
  gw_gangs_release(made);
  return status;
}
static gw_status create_gang_null(scene* s, int bad) {
  const int32_t ranks[2] = {0, 1};
  gw_gang* made = NULL;
  const gw_status status = gw_gang_create_gang(s->me->gang, ranks, 2, bad ? NULL : &made);
  gw_gang_release(made);
  return status;
}
static gw_status split_null(scene* s, int bad) {
  gw_gang* made = NULL;
  const gw_status status = gw_gang_split(s->me->gang, 0, 0, bad ? NULL : &made);
  gw_gang_release(made);
  return status;
}
static gw_status duplicate_null(scene* s, int bad) {
  gw_gang* made = NULL;
  const gw_status status = gw_gang_duplicate(s->me->gang, bad ? NULL : &made);
  gw_gang_release(made);
  return status;
}
static gw_status create_parallel_gangs(scene* s, int bad) {
  gw_gangs* made = NULL;
  const gw_status status = gw_gangs_create_parallel(s->me->gang, bad ? 0 : 1, 1, 1, &made);
  gw_gangs_release(made);
  return status;
}
static gw_status create_fsdp_gangs(scene* s, int bad) {
  gw_gangs* made = NULL;
  const gw_status status = gw_gangs_create_fsdp(s->gangs, bad ? -5 : 0, &made);
  gw_gangs_release(made);
  return status;
}
static gw_status create_gang(scene* s, int bad) {
  const int32_t ranks[2] = {0, bad ? 9 : 1};
  gw_gang* made = NULL;
  const gw_status status = gw_gang_create_gang(s->me->gang, ranks, 2, &made);
  gw_gang_release(made);
  return status;
}
static gw_status parallelize(scene* s, int bad) {
  gw_module* m = llama();
  gw_parallel_options o;
  gw_shard_options shard;
  gw_parallel_options_init(&o, sizeof o);
  gw_shard_options_init(&shard, sizeof shard);
  o.shard = &shard;
  if (bad) shard.bucket_cap_mb = -3;
  const gw_status status = gw_parallelize(m, s->gangs, &o);
  gw_module_release(m);
  return status;
}
static gw_status parallelize_null(scene* s, int bad) {
  gw_module* m = llama();
  const gw_status status = gw_parallelize(bad ? NULL : m, s->gangs, NULL);
  gw_module_release(m);
  return status;
}
static gw_status fully_shard(scene* s, int bad) {
  gw_module* m = llama();
  const gw_status status = gw_fully_shard(m, bad ? "no.such.*" : "", s->gangs, NULL);
  gw_module_release(m);
  return status;
}
static gw_status replicate(scene* s, int bad) {
  gw_module* m = llama();
  gw_shard_options o;
  gw_shard_options_init(&o, sizeof o);
  o.cpu_offload = bad;
  const gw_status status = gw_replicate(m, s->gangs, &o);
  gw_module_release(m);
  return status;
}
static gw_status materialize(scene* s, int bad) {
  gw_module* m = llama();
  gw_status status = gw_fully_shard(m, "", s->gangs, NULL);
  if (status == GW_OK) status = gw_module_materialize(m, s->gangs, 1, bad ? GW_BF16 : GW_F32);
  gw_module_release(m);
  return status;
}
static gw_status create_group(scene* s, int bad) {
  gw_parameter_options p;
  gw_shard_group* made = NULL;
  gw_parameter_options_init(&p, sizeof p);
  p.name = "w";
  p.ndim = 1;
  p.dims[0] = bad ? -6 : 6;
  const gw_status status = gw_shard_group_create(s->gangs, "made", &p, 1, NULL, 1, &made);
  gw_shard_group_release(made);
  return status;
}
static gw_status fill(void* user, int64_t first, int64_t last, void* rows, size_t count, gw_dtype dtype) {
  (void)count;
  (void)dtype;
  (void)first;
  (void)last;
  (void)rows;
  return *(const int*)user ? GW_E_CALLER : GW_OK;
}
static gw_status fill_group(scene* s, int bad) {
  gw_parameter_options p;
  gw_init_options init;
  gw_shard_group* made = NULL;
  gw_init_options_init(&init, sizeof init);
  init.kind = GW_INIT_FILL;
  init.fill = fill;
  init.user = &bad;
  gw_parameter_options_init(&p, sizeof p);
  p.name = "w";
  p.ndim = 1;
  p.dims[0] = 6;
  p.initializer = &init;
  const gw_status status = gw_shard_group_create(s->gangs, "made", &p, 1, NULL, 1, &made);
  gw_shard_group_release(made);
  return status;
}
static gw_status begin_update(scene* s, int bad) {
  gw_status status = gw_shard_group_unshard(s->group, NULL, NULL);
  if (status == GW_OK && !bad) status = gw_shard_group_reshard(s->group, NULL);
  if (status == GW_OK) status = gw_shard_group_begin_update(s->group, NULL);
  if (status == GW_OK) return gw_shard_group_end_update(s->group, NULL);
  return status;
}
static gw_status load(scene* s, int bad) {
  return gw_module_load(s->ready, bad ? "/nonexistent/model" : s->folder, NULL);
}
static gw_status load_options(scene* s, int bad) {
  gw_load_options o;
  gw_load_options_init(&o, sizeof o);
  if (bad) o.struct_size = 5;
  return gw_module_load(s->ready, s->folder, &o);
}
static gw_status save(scene* s, int bad) {
  gw_save_options o;
  gw_save_options_init(&o, sizeof o);
  o.dtype = bad ? GW_I8 : GW_F32;
  return gw_module_save(s->ready, s->folder, &o);
}
static gw_status assign(scene* s, int bad) {
  const float values[8] = {1, 1, 1, 1, 1, 1, 1, 1};
  const int64_t shape[1] = {bad ? 7 : 8};
  gw_view view;
  gw_parameter* norm = NULL;
  gw_view_set(&view, (void*)(uintptr_t)values, shape, 1, GW_F32);
  gw_status status = gw_module_find_parameter(s->ready, "model.norm.weight", &norm);
  if (status == GW_OK) status = gw_parameter_assign(norm, &view, NULL);
  gw_parameter_release(norm);
  return status;
}
static gw_status train(scene* s, int bad) {
  small_batch b;
  fill_batch(&b, 2, s->me->index);
  if (bad) b.tokens[3] = 77;
  return gw_train_step(s->ready, s->optimizer, &b.batch, NULL, NULL, NULL);
}
static gw_status train_null(scene* s, int bad) {
  small_batch b;
  fill_batch(&b, 2, s->me->index);
  return gw_train_step(s->ready, bad ? NULL : s->optimizer, &b.batch, NULL, NULL, NULL);
}
static gw_status train_options(scene* s, int bad) {
  small_batch b;
  gw_step_options o;
  fill_batch(&b, 2, s->me->index);
  gw_step_options_init(&o, sizeof o);
  if (bad) o.norm_type = -1;
  return gw_train_step(s->ready, s->optimizer, &b.batch, &o, NULL, NULL);
}
static gw_status evaluate(scene* s, int bad) {
  small_batch b;
  gw_step_result r;
  fill_batch(&b, 2, s->me->index);
  gw_step_result_init(&r, sizeof r);
  return gw_eval_step(s->ready, bad ? NULL : &b.batch, NULL, NULL, &r);
}
static gw_status step(scene* s, int bad) {
  gw_step_options o;
  gw_step_options_init(&o, sizeof o);
  if (bad) o.max_grad_norm = -2;
  return gw_optimizer_step(s->optimizer, &o, NULL, NULL);
}
static gw_status generate(scene* s, int bad) {
  const int64_t prompt[1] = {bad ? -1 : 1};
  int64_t tokens[4];
  size_t count = 0;
  gw_generate_options o;
  gw_generate_options_init(&o, sizeof o);
  o.token_count = 2;
  return gw_generate(s->ready, prompt, 1, &o, NULL, tokens, 4, &count);
}

static gw_status clip_null(scene* s, int bad) {
  double norm = 0;
  return gw_clip_grad_norm(s->ready, 1, 2, NULL, bad ? NULL : &norm);
}
static gw_status gather_first(scene* s, int bad, int gradient) {
  gw_parameter* first = NULL;
  gw_tensor* whole = NULL;
  gw_status status = gw_module_parameter(s->ready, 0, &first);
  if (status == GW_OK && gradient)
    status = gw_parameter_gather_gradient(first, NULL, bad ? NULL : &whole);
  else if (status == GW_OK)
    status = gw_parameter_gather(first, NULL, bad ? NULL : &whole);
  gw_tensor_release(whole);
  gw_parameter_release(first);
  return status;
}
static gw_status gather_null(scene* s, int bad) { return gather_first(s, bad, 0); }
static gw_status gather_gradient_null(scene* s, int bad) { return gather_first(s, bad, 1); }

static const struct {
  const char* call;
  gw_status (*run)(scene* s, int bad);
  gw_status code;
  const char* part;
} kTable[] = {
    {"gw_gangs_create", create_gangs, GW_E_INVALID_ARGUMENT,
     "gw_gangs_create: pp 1 x dp_replicate 1 x dp_shard auto x cp 1 x tp 7 = 7 x auto, but the root gang has "
     "3 ranks"},
    {"gw_gangs_create", create_gangs_null, GW_E_INVALID_ARGUMENT, "gw_gangs_create: out_gangs is null"},
    {"gw_gangs_create_parallel", create_parallel_null, GW_E_INVALID_ARGUMENT, "out_gangs is null"},
    {"gw_gangs_create_fsdp", create_fsdp_null, GW_E_INVALID_ARGUMENT, "out_gangs is null"},
    {"gw_gang_create_gang", create_gang_null, GW_E_INVALID_ARGUMENT, "gw_gang_create_gang: out_gang is null"},
    {"gw_gang_split", split_null, GW_E_INVALID_ARGUMENT, "out_gang is null"},
    {"gw_gang_duplicate", duplicate_null, GW_E_INVALID_ARGUMENT, "out_gang is null"},
    {"gw_gangs_create_parallel", create_parallel_gangs, GW_E_INVALID_ARGUMENT, "tp 0 is not a factor"},
    {"gw_gangs_create_fsdp", create_fsdp_gangs, GW_E_INVALID_ARGUMENT, "intra_node_size -5"},
    {"gw_gang_create_gang", create_gang, GW_E_INVALID_ARGUMENT, "rank 9 is outside"},
    {"gw_parallelize", parallelize, GW_E_INVALID_ARGUMENT, "bucket_cap_mb is -3"},
    {"gw_parallelize", parallelize_null, GW_E_INVALID_ARGUMENT, "model is null"},
    {"gw_fully_shard", fully_shard, GW_E_NOT_FOUND, "no.such.*"},
    {"gw_replicate", replicate, GW_E_INVALID_ARGUMENT, "cpu_offload"},
    {"gw_module_materialize", materialize, GW_E_INVALID_ARGUMENT, "bf16"},
    {"gw_shard_group_create", create_group, GW_E_INVALID_ARGUMENT, "dim 0 of a tensor is -6"},
    {"gw_shard_group_create, fill", fill_group, GW_E_CALLER, "fill"},
    {"gw_shard_group_begin_update", begin_update, GW_E_INVALID_STATE, "still unsharded"},
    {"gw_module_load", load, GW_E_IO, "/nonexistent/model"},
    {"gw_module_load", load_options, GW_E_INVALID_ARGUMENT, "options.struct_size is 5"},
    {"gw_module_save", save, GW_E_INVALID_ARGUMENT, "dtype = i8"},
    {"gw_parameter_assign", assign, GW_E_INVALID_ARGUMENT, "f32 [7]"},
    {"gw_train_step", train, GW_E_INVALID_ARGUMENT, "token id 77 is outside the vocabulary of 11"},
    {"gw_train_step", train_null, GW_E_INVALID_ARGUMENT, "optimizer is null"},
    {"gw_train_step", train_options, GW_E_INVALID_ARGUMENT, "norm_type = -1"},
    {"gw_eval_step", evaluate, GW_E_INVALID_ARGUMENT, "batch is null"},
    {"gw_optimizer_step", step, GW_E_INVALID_ARGUMENT, "max_grad_norm = -2"},
    {"gw_clip_grad_norm", clip_null, GW_E_INVALID_ARGUMENT, "out_norm is null"},
    {"gw_parameter_gather", gather_null, GW_E_INVALID_ARGUMENT, "out_tensor is null"},
    {"gw_parameter_gather_gradient", gather_gradient_null, GW_E_INVALID_ARGUMENT, "out_tensor is null"},
    {"gw_generate", generate, GW_E_INVALID_ARGUMENT, "id -1"},
};

static void every_row(rank* me) {
  scene s = {me, me->user, NULL, NULL, NULL, NULL};
  gw_parameter_options w;
  gw_parameter_options_init(&w, sizeof w);
  w.name = "w";
  w.ndim = 1;
  w.dims[0] = 5;
  EXPECT_OK(gw_gangs_create(me->gang, NULL, &s.gangs));
  s.ready = llama();
  EXPECT_OK(gw_parallelize(s.ready, s.gangs, NULL));
  EXPECT_OK(gw_sgd_create(s.ready, NULL, &s.optimizer));
  EXPECT_OK(gw_shard_group_create(s.gangs, "g", &w, 1, NULL, 1, &s.group));
  EXPECT_OK(gw_module_save(s.ready, s.folder, NULL));
  for (size_t i = 0; i < sizeof kTable / sizeof *kTable; ++i)
    for (int32_t bad = 0; bad < me->size; ++bad) {
      const char* const wrong =
          wrong_status(kTable[i].run(&s, me->index == bad), kTable[i].code, kTable[i].part);
      const int32_t told = last_error().rank;
      if (wrong[0] != '\0' || told != bad) {
        snprintf(me->failure, sizeof me->failure, "%s, bad on rank %d: %s; the error is of rank %d",
                 kTable[i].call, (int)bad, wrong, (int)told);
        gw_gang_abort(me->gang, me->failure);
        return;
      }
      EXPECT_OK(gw_shard_group_reshard(s.group, NULL));
      EXPECT_OK(gw_gang_async_error(me->gang));
      EXPECT_OK(kTable[i].run(&s, 0)); /* the gang goes on working */
    }
  gw_shard_group_release(s.group);
  gw_optimizer_release(s.optimizer);
  gw_module_release(s.ready);
  EXPECT_OK(gw_gangs_shutdown(s.gangs, -1));
  gw_gangs_release(s.gangs);
}

static void one_ranks_refusal_comes_back_on_every_rank(void** state) {
  (void)state;
  char folder[] = "/tmp/gangway-agreed-XXXXXX", command[80];
  assert_non_null(mkdtemp(folder));
  run_ranks(3, every_row, folder);
  snprintf(command, sizeof command, "rm -r %s", folder);
  assert_int_equal(system(command), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {test_on_device(one_ranks_refusal_comes_back_on_every_rank)};
  return cmocka_run_group_tests_name("capi_agreed", tests, NULL, NULL);
}

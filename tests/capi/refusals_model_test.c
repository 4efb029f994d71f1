/* Refusals of models, sharding, optimizers and steps on one rank. */
#include "refusals.h"

static gw_module* out;

static gw_module* llama(void) {
  gw_module* m = NULL;
  const gw_decoder_options o = small_llama();
  assert_ok(gw_decoder_create(&o, &m));
  return m;
}

#define LLAMA(field, value) (l = small_llama(), l.field = (value), gw_decoder_create(&l, &out))

static void bad_configurations_of_a_llama_are_refused(void** state) {
  (void)state;
  gw_decoder_options l;
  ROW(LLAMA(vocab, 0), INVALID_ARGUMENT, "vocab");
  ROW(LLAMA(dim, -8), INVALID_ARGUMENT, "dim is -8");
  ROW(LLAMA(layers, -1), INVALID_ARGUMENT, "layers is -1");
  ROW(LLAMA(heads, 0), INVALID_ARGUMENT, "heads");
  ROW(LLAMA(heads, 3), INVALID_ARGUMENT, "heads");
  ROW(LLAMA(kv_heads, 3), INVALID_ARGUMENT, "kv_heads 3 does not divide");
  ROW(LLAMA(head_dim, 5), INVALID_ARGUMENT, "head_dim is 5");
  ROW(LLAMA(ffn, -1), INVALID_ARGUMENT, "ffn is -1");
  ROW(LLAMA(max_positions, -1), INVALID_ARGUMENT, "max_positions is -1");
  ROW(LLAMA(eps, 0), INVALID_ARGUMENT, "eps is 0");
  ROW(LLAMA(rope_theta, -1), INVALID_ARGUMENT, "theta is -1");
  ROW(LLAMA(initializer_range, -1), INVALID_ARGUMENT, "initializer_range is -1");
  assert_null(out);
  end_of_table();
}

#define PARALLEL(field, value) \
  (gw_parallel_options_init(&p, sizeof p), p.field = (value), gw_parallelize(m, NULL, &p))
#define SHARD(field, value) \
  (gw_shard_options_init(&s, sizeof s), s.field = (value), gw_fully_shard(m, "", NULL, &s))
/* The same by gw_parallelize. */
#define WITH_SHARD(field, value)                                                              \
  (gw_parallel_options_init(&p, sizeof p), gw_shard_options_init(&s, sizeof s), p.shard = &s, \
   s.field = (value), gw_parallelize(m, NULL, &p))

static void bad_options_of_parallelism_are_refused(void** state) {
  (void)state;
  gw_module* m = llama();
  gw_parallel_options p;
  gw_shard_options s;
  ROW(WITH_SHARD(strategy, 3), INVALID_ARGUMENT, "options.shard.strategy is 3");
  ROW(WITH_SHARD(strategy, -1), INVALID_ARGUMENT, "options.shard.strategy is -1");
  ROW(WITH_SHARD(reshard_after_forward, 2), INVALID_ARGUMENT, "2, which is no factor of the 1 ranks");
  ROW(WITH_SHARD(reshard_after_forward, -2), INVALID_ARGUMENT, "reshard_after_forward is -2");
  ROW(WITH_SHARD(accumulate_unsharded, 2), INVALID_ARGUMENT, "accumulate_unsharded is 2");
  ROW((gw_parallel_options_init(&p, sizeof p), gw_shard_options_init(&s, sizeof s), p.shard = &s,
       s.strategy = GW_NO_SHARD, s.accumulate_unsharded = 0, gw_parallelize(m, NULL, &p)),
      INVALID_ARGUMENT, "accumulate_unsharded is 0");
  ROW(WITH_SHARD(param_dtype, GW_I64), INVALID_ARGUMENT, "param_dtype is i64");
  ROW(WITH_SHARD(param_dtype, GW_F64), INVALID_ARGUMENT, "param_dtype is f64");
  ROW(WITH_SHARD(param_dtype, 0x22002), INVALID_ARGUMENT, "dtype");
  ROW(WITH_SHARD(reduce_dtype, GW_U8), INVALID_ARGUMENT, "reduce_dtype is u8");
  ROW(WITH_SHARD(bucket_cap_mb, 0), INVALID_ARGUMENT, "bucket_cap_mb is 0");
  ROW((gw_parallel_options_init(&p, sizeof p), gw_shard_options_init(&s, sizeof s), p.shard = &s,
       s.strategy = GW_NO_SHARD, s.cpu_offload = 1, gw_parallelize(m, NULL, &p)),
      INVALID_ARGUMENT, "cpu_offload is 1");
  ROW(WITH_SHARD(output_dtype, GW_I8), INVALID_ARGUMENT, "output_dtype is i8");
  ROW(WITH_SHARD(prefetch_forward, -1), INVALID_ARGUMENT, "prefetch_forward is -1");
  ROW(WITH_SHARD(prefetch_backward, -1), INVALID_ARGUMENT, "prefetch_backward is -1");
  ROW(WITH_SHARD(rule_count, 1), INVALID_ARGUMENT, "options.shard.rules is null");
  ROW(WITH_SHARD(struct_size, 7), INVALID_ARGUMENT, "options.shard.struct_size is 7");
  ROW(PARALLEL(master_dtype, GW_BF16), INVALID_ARGUMENT, "master_dtype is bf16");
  ROW(PARALLEL(recompute, 9), INVALID_ARGUMENT, "kind is 9");
  ROW((gw_parallel_options_init(&p, sizeof p), p.recompute = GW_RECOMPUTE_EVERY, p.recompute_every = 0,
       gw_parallelize(m, NULL, &p)),
      INVALID_ARGUMENT, "every 0");
  ROW((gw_parallel_options_init(&p, sizeof p), p.recompute = GW_RECOMPUTE_RATIO, p.recompute_ratio = 1.5,
       gw_parallelize(m, NULL, &p)),
      INVALID_ARGUMENT, "ratio is 1.5");
  ROW(PARALLEL(context_method, 3), INVALID_ARGUMENT, "options.context_method is 3");
  ROW(PARALLEL(stage_split, 3), INVALID_ARGUMENT, "options.stage_split is 3");
  ROW(PARALLEL(first_layer_count, 1), INVALID_ARGUMENT, "options.first_layers is null");
  ROW(SHARD(output_dtype, GW_I8), INVALID_ARGUMENT, "output_dtype is i8");
  ROW(SHARD(prefetch_forward, -1), INVALID_ARGUMENT, "prefetch_forward is -1");
  ROW(SHARD(prefetch_backward, -1), INVALID_ARGUMENT, "prefetch_backward is -1");
  ROW(gw_fully_shard(m, "model.blocks.*", NULL, NULL), NOT_FOUND, "model.blocks.*");
  assert_ok(gw_parallelize(m, NULL, NULL)); /* the refused calls have changed nothing */
  gw_module_release(m);
  end_of_table();
}

static int32_t never_bf16(void* user, gw_dtype dtype) {
  (void)user;
  return dtype != GW_BF16;
}

static void a_dtype_that_a_custom_module_does_not_take_is_refused(void** state) {
  (void)state;
  line l = {0};
  int freed = 0;
  gw_init_options init;
  gw_parameter_options w;
  gw_custom_options c;
  gw_parallel_options p;
  gw_shard_options s;
  gw_module* m = NULL;
  line_parameter(&w, &init, &freed);
  line_options(&c, &l, &w);
  c.accepts_dtype = never_bf16;
  assert_ok(gw_custom_create(&c, &m));
  ROW(WITH_SHARD(param_dtype, GW_BF16), NOT_SUPPORTED, "module line does not compute in bf16");
  assert_ok(gw_parallelize(m, NULL, NULL));
  gw_module_release(m);
  assert_int_equal(l.frees, 1);
  end_of_table();
}

static void degrees_that_a_model_is_not_made_for_are_refused(void** state) {
  (void)state;
  gw_gang* root = NULL;
  gw_gangs *tp = NULL, *cp = NULL, *pp = NULL;
  gw_module* m = llama();
  gw_parameter_options w;
  gw_shard_group* group = NULL;
  gw_parameter_options_init(&w, sizeof w);
  w.name = "w";
  w.ndim = 1;
  w.dims[0] = 4;
  assert_ok(gw_gang_create_fake(0, 2, NULL, &root));
  assert_ok(gw_gangs_create_parallel(root, 2, 1, 1, &tp));
  assert_ok(gw_gangs_create_parallel(root, 1, 1, 2, &cp));
  assert_ok(gw_gangs_create_parallel(root, 1, 2, 1, &pp));
  ROW(gw_parallelize(m, tp, NULL), INVALID_ARGUMENT,
      "model.layers.0.self_attn.k_proj has 1 key and value heads, which tp 2 does not divide");
  gw_module* linear = NULL;
  assert_ok(gw_linear_create(2, 2, 1, &linear));
  ROW(gw_parallelize(linear, pp, NULL), NOT_SUPPORTED, "pp is 2, but a Linear cannot be cut into stages");
  gw_module_release(linear);
  ROW(gw_fully_shard(m, "", tp, NULL), INVALID_STATE,
      "fully_shard: tp is 2, but the model is not split over tp; tensor_parallel comes first");
  ROW(gw_replicate(m, cp, NULL), INVALID_STATE,
      "replicate: cp is 2, but attention does not go over cp; context_parallel comes first");
  ROW(gw_module_materialize(m, pp, 1, GW_F32), NOT_SUPPORTED, "pp is 2");
  ROW(gw_shard_group_create(tp, "g", &w, 1, NULL, 1, &group), NOT_SUPPORTED, "tp is 2");
  assert_null(group);
  gw_module_release(m);
  gw_gangs_release(tp);
  gw_gangs_release(cp);
  gw_gangs_release(pp);
  gw_gang_release(root);
  end_of_table();
}

static void training_over_a_fake_gang_is_refused(void** state) {
  (void)state;
  gw_gang* root = NULL;
  gw_gangs* gangs = NULL;
  gw_module* m = llama();
  gw_optimizer* opt = NULL;
  gw_frame* frame = NULL;
  gw_tensor* y[2];
  size_t count;
  small_batch b;
  fill_batch(&b, 2, 0);
  assert_ok(gw_gang_create_fake(0, 2, NULL, &root));
  assert_ok(gw_gangs_create(root, NULL, &gangs));
  assert_ok(gw_parallelize(m, gangs, NULL));
  assert_ok(gw_sgd_create(m, NULL, &opt));
  assert_ok(gw_frame_create(m, NULL, &frame));
  ROW(gw_train_step(m, opt, &b.batch, NULL, NULL, NULL), NOT_SUPPORTED, "a fake gang of 2 ranks");
  ROW(gw_optimizer_step(opt, NULL, NULL, NULL), NOT_SUPPORTED, "a fake gang of 2 ranks");
  ROW(gw_module_forward(m, &b.input, 1, frame, NULL, y, 2, &count), NOT_SUPPORTED, "a fake gang of 2 ranks");
  gw_frame_release(frame);
  gw_optimizer_release(opt);
  gw_module_release(m);
  gw_gangs_release(gangs);
  gw_gang_release(root);
  end_of_table();
}

/* Each refusal names the missing call. */
static void calls_out_of_order_are_refused(void** state) {
  (void)state;
  gw_decoder_options tied_options = small_llama();
  tied_options.tied = 1;
  gw_module *m = llama(), *tied = NULL, *ready = materialized_llama(), *parent = NULL;
  gw_parameter* p = NULL;
  gw_optimizer *opt = NULL, *trains = NULL;
  gw_frame* frame = NULL;
  gw_view view;
  gw_memory_use use;
  small_batch b;
  double norm;
  fill_batch(&b, 1, 0);
  gw_memory_use_init(&use, sizeof use);
  assert_ok(gw_decoder_create(&tied_options, &tied));
  assert_ok(gw_sgd_create(ready, NULL, &trains));
  assert_ok(gw_module_find_parameter(m, "model.norm.weight", &p));
  const char* const lacks = "call gw_parallelize or gw_module_materialize first";
  ROW(gw_train_step(m, trains, &b.batch, NULL, NULL, NULL), INVALID_STATE, lacks);
  ROW(gw_adamw_create(m, NULL, &opt), INVALID_STATE, lacks);
  ROW(gw_sgd_create(m, NULL, &opt), INVALID_STATE, lacks);
  ROW(gw_frame_create(m, NULL, &frame), INVALID_STATE, lacks);
  ROW(gw_module_save(m, "/nowhere", NULL), INVALID_STATE, lacks);
  ROW(gw_module_load(m, "/nowhere", NULL), INVALID_STATE, lacks);
  ROW(gw_module_memory(m, &use), INVALID_STATE, lacks);
  ROW(gw_module_check_replicas(m, NULL), INVALID_STATE, lacks);
  ROW(gw_clip_grad_norm(m, 1, 2, NULL, &norm), INVALID_STATE, lacks);
  ROW(gw_zero_grad(m, NULL), INVALID_STATE, lacks);
  ROW(gw_module_set_no_sync(m, 1), INVALID_STATE, lacks);
  ROW(gw_parameter_view(p, GW_PART_VALUE, &view), INVALID_STATE, lacks);
  ROW(gw_fully_shard(ready, "", NULL, NULL), INVALID_STATE, "gw_fully_shard comes before gw_parallelize");
  ROW(gw_replicate(ready, NULL, NULL), INVALID_STATE, "gw_replicate comes before gw_parallelize");
  ROW(gw_parallelize(ready, NULL, NULL), INVALID_STATE, "gw_parallelize: the model has its values already");
  ROW(gw_module_materialize(ready, NULL, 1, GW_F32), INVALID_STATE, "materialised");
  ROW(gw_module_freeze(ready, "*"), INVALID_STATE, "gw_module_freeze comes before gw_parallelize");
  ROW(gw_recompute(ready, GW_RECOMPUTE_FULL, 1, 1), INVALID_STATE,
      "gw_recompute comes before gw_fully_shard");
  ROW(gw_sequential_create(&ready, 1, &parent), INVALID_STATE, "models[0] is bound to gangs already");
  ROW(gw_fully_shard(tied, "model.embed_tokens", NULL, NULL), INVALID_ARGUMENT, "tied");
  gw_parameter_release(p);
  ROW(gw_module_find_parameter(ready, "lm_head.bias", &p), NOT_FOUND, "lm_head.bias");
  ROW(gw_module_freeze(m, "nothing.*"), NOT_FOUND, "nothing.*");
  ROW(gw_module_load(ready, "/nonexistent/model", NULL), IO, "/nonexistent/model");
  ROW(gw_train_step(ready, NULL, &b.batch, NULL, NULL, NULL), INVALID_ARGUMENT, "optimizer is null");
  assert_null(opt);
  assert_null(frame);
  assert_null(parent);
  gw_optimizer_release(trains);
  gw_module_release(m);
  gw_module_release(tied);
  gw_module_release(ready);
  end_of_table();
}

#define STEP(change, batch_change)                                                 \
  (fill_batch(&b, 2, 0), gw_step_options_init(&o, sizeof o), change, batch_change, \
   gw_train_step(m, opt, &b.batch, &o, NULL, NULL))

static void steps(void** state) {
  (void)state;
  gw_module *m = materialized_llama(), *other = materialized_llama();
  gw_optimizer *opt = NULL, *others = NULL;
  gw_step_options o;
  small_batch b;
  char tail[sizeof o + 8];
  gw_generate_options g;
  int64_t tokens[64], prompt[1] = {1};
  size_t count = 0;
  assert_ok(gw_sgd_create(m, NULL, &opt));
  assert_ok(gw_sgd_create(other, NULL, &others));
  ROW(STEP(o.microbatches = 0, (void)0), INVALID_ARGUMENT, "microbatches = 0");
  ROW(STEP(o.max_grad_norm = -1, (void)0), INVALID_ARGUMENT, "max_grad_norm = -1");
  ROW(STEP(o.norm_type = 0, (void)0), INVALID_ARGUMENT, "norm_type = 0");
  ROW(STEP(o.scale = 2, (void)0), INVALID_ARGUMENT, "scale = 2");
  ROW(STEP((void)0, b.tokens[5] = 11), INVALID_ARGUMENT, "token id 11 is outside the vocabulary of 11");
  ROW(STEP((void)0, b.tokens[5] = -2), INVALID_ARGUMENT, "id -2");
  ROW(STEP((void)0, b.input.dtype = GW_F32), INVALID_ARGUMENT, "tokens are f32");
  ROW(STEP((void)0, b.input.ndim = 9), INVALID_ARGUMENT, "ndim 9");
  ROW(STEP((void)0, b.input.data = NULL), INVALID_ARGUMENT, "batch.inputs[0]");
  ROW(STEP((void)0, b.input.device_type = GW_DEVICE_CUDA), INVALID_ARGUMENT,
      on_gpus(test_device())
          ? "batch.inputs[0] lies on cuda:0, it says, but its memory is plain memory of the host"
          : "device type 2");
  ROW(STEP((void)0, b.shape[0] = -1), INVALID_ARGUMENT, "dim 0 of a tensor is -1");
  ROW(STEP((void)0, b.shape[1] = 17), INVALID_ARGUMENT, "sequences of 17 tokens");
  ROW(STEP((void)0, b.batch.input_count = 0), INVALID_ARGUMENT, "inputs is empty");
  ROW(STEP((void)0, b.batch.shift_labels = 0), INVALID_ARGUMENT, "is its own token");
  ROW(STEP((void)0, b.batch.weight = -2), INVALID_ARGUMENT, "weight = -2");
  ROW(STEP((void)0, b.batch.weight = 5), INVALID_ARGUMENT, "weight = 5, but 6 labels count");
  ROW(STEP((void)0, b.batch.struct_size = 4), INVALID_ARGUMENT, "batch.struct_size is 4");
  ROW(gw_train_step(m, opt, NULL, NULL, NULL, NULL), INVALID_ARGUMENT, "batch is null");
  fill_batch(&b, 2, 0);
  ROW(gw_train_step(m, others, &b.batch, NULL, NULL, NULL), INVALID_ARGUMENT, "another model");
  /* A larger struct, with a field that this library does not know. */
  gw_step_options_init((gw_step_options*)(void*)tail, sizeof tail);
  tail[sizeof o + 3] = 1;
  ROW(gw_optimizer_step(opt, (const gw_step_options*)(const void*)tail, NULL, NULL), NOT_SUPPORTED,
      "sets a field at byte");
  gw_generate_options_init(&g, sizeof g);
  g.temperature = -1;
  ROW(gw_generate(m, prompt, 1, &g, NULL, tokens, 64, &count), INVALID_ARGUMENT, "temperature = -1");
  ROW((g.temperature = 1, g.top_k = -3, gw_generate(m, prompt, 1, &g, NULL, tokens, 64, &count)),
      INVALID_ARGUMENT, "top_k = -3");
  ROW((g.top_k = 0, g.token_count = -3, gw_generate(m, prompt, 1, &g, NULL, tokens, 64, &count)),
      INVALID_ARGUMENT, "token_count is -3");
  ROW(gw_generate(m, prompt, 0, NULL, NULL, tokens, 64, &count), INVALID_ARGUMENT, "prompt is empty");
  gw_optimizer_release(opt);
  gw_optimizer_release(others);
  gw_module_release(m);
  gw_module_release(other);
  end_of_table();
}

#define ADAMW(field, value) \
  (gw_adamw_options_init(&a, sizeof a), a.field = (value), gw_adamw_create(m, &a, &opt))
#define SGD(field, value) (gw_sgd_options_init(&s, sizeof s), s.field = (value), gw_sgd_create(m, &s, &opt))
#define RULE(field, value)                                                                \
  (gw_optimizer_rule_init(&rule, sizeof rule), rule.pattern = "**", rule.field = (value), \
   gw_sgd_options_init(&s, sizeof s), s.rules = &rule, s.rule_count = 1, gw_sgd_create(m, &s, &opt))

static void optimizers(void** state) {
  (void)state;
  gw_module* m = materialized_llama();
  gw_optimizer* opt = NULL;
  gw_adamw_options a;
  gw_sgd_options s;
  gw_optimizer_rule rule;
  ROW(ADAMW(lr, -1), INVALID_ARGUMENT, "lr = -1");
  ROW(ADAMW(beta1, 1), INVALID_ARGUMENT, "beta1 = 1");
  ROW(ADAMW(beta2, -0.5), INVALID_ARGUMENT, "beta2 = -0.5");
  ROW(ADAMW(eps, 0), INVALID_ARGUMENT, "eps = 0");
  ROW(ADAMW(weight_decay, -2), INVALID_ARGUMENT, "weight_decay = -2");
  ROW(ADAMW(schedule, 6), INVALID_ARGUMENT, "schedule is 6");
  ROW(ADAMW(schedule, GW_COSINE), INVALID_ARGUMENT, "total_steps = 0");
  ROW(ADAMW(warmup_steps, -1), INVALID_ARGUMENT, "warmup_steps = -1");
  ROW(ADAMW(total_steps, -1), INVALID_ARGUMENT, "total_steps = -1");
  ROW(ADAMW(last_lr_ratio, 2), INVALID_ARGUMENT, "ratio = 2");
  ROW(ADAMW(moment_dtype, GW_F16), INVALID_ARGUMENT, "moment_dtype = f16");
  ROW(ADAMW(loss_scale, -1), INVALID_ARGUMENT, "loss_scale = -1");
  ROW(ADAMW(initial_loss_scale, 0.5), INVALID_ARGUMENT, "initial_loss_scale = 0.5");
  ROW(ADAMW(loss_scale_interval, 0), INVALID_ARGUMENT, "loss_scale_interval = 0");
  ROW(SGD(loss_scale, -2), INVALID_ARGUMENT, "loss_scale = -2");
  ROW(SGD(initial_loss_scale, 0), INVALID_ARGUMENT, "initial_loss_scale = 0");
  ROW(SGD(loss_scale_interval, -1), INVALID_ARGUMENT, "loss_scale_interval = -1");
  ROW(SGD(momentum, 1), INVALID_ARGUMENT, "momentum = 1");
  ROW(SGD(nesterov, 1), INVALID_ARGUMENT, "nesterov needs momentum");
  ROW(SGD(rule_count, 1), INVALID_ARGUMENT, "rules is null");
  ROW(RULE(pattern, NULL), INVALID_ARGUMENT, "pattern is null");
  ROW(RULE(pattern, ""), INVALID_ARGUMENT, "empty pattern");
  ROW(RULE(pattern, "norm.*"), INVALID_ARGUMENT, "\"norm.*\" matches none");
  ROW(RULE(lr_scale, -1), INVALID_ARGUMENT, "lr_scale = -1");
  ROW(RULE(weight_decay, -0.5), INVALID_ARGUMENT, "weight_decay = -0.5");
  ROW(RULE(struct_size, 2), INVALID_ARGUMENT, "struct_size is 2");
  assert_null(opt);
  gw_module_release(m);
  end_of_table();
}

int main(void) {
  const struct CMUnitTest tests[] = {test_on_device(bad_configurations_of_a_llama_are_refused),
                                     test_on_device(bad_options_of_parallelism_are_refused),
                                     test_on_device(a_dtype_that_a_custom_module_does_not_take_is_refused),
                                     test_on_device(degrees_that_a_model_is_not_made_for_are_refused),
                                     test_on_device(training_over_a_fake_gang_is_refused),
                                     test_on_device(calls_out_of_order_are_refused),
                                     test_on_device(steps),
                                     test_on_device(optimizers)};
  return cmocka_run_group_tests_name("capi_refusals_model", tests, NULL, NULL);
}

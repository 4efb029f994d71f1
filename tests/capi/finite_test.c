/* Every floating option of every struct, and every floating argument that is a setting, refuses infinity and
 * NaN with its name and value. tests/capi/exports_test.py checks that no field of an options struct is
 * missing here. */
#include <math.h>

#include "optimizer_rows.h"
#include "refusals.h"

static gw_module* trained;      /* has memory */
static gw_optimizer* optimizer; /* of `trained` */
static small_batch batch;

/* One call for each struct that has floating fields. It gets `x` as the whole struct. */
static gw_status decoder(gw_decoder_options* x) {
  gw_module* m = NULL;
  return gw_decoder_create(x, &m);
}
static gw_status attention(gw_attention_options* x) {
  gw_module* m = NULL;
  x->dim = 8;
  x->heads = 2;
  return gw_attention_create(x, &m);
}
static gw_status feed_forward(gw_feed_forward_options* x) {
  gw_module* m = NULL;
  x->dim = x->ffn = 8;
  return gw_feed_forward_create(x, &m);
}
static gw_status init(gw_init_options* x) {
  gw_parameter_options p;
  gw_shard_group* g = NULL;
  gw_parameter_options_init(&p, sizeof p);
  p.name = "w";
  p.ndim = 1;
  p.dims[0] = 2;
  p.initializer = x;
  return gw_shard_group_create(NULL, "g", &p, 1, NULL, 0, &g);
}
static gw_status frame(gw_frame_options* x) {
  gw_frame* f = NULL;
  return gw_frame_create(trained, x, &f);
}
#define OPTIMIZER(kind)                           \
  static gw_status kind(gw_##kind##_options* x) { \
    gw_optimizer* o = NULL;                       \
    return gw_##kind##_create(trained, x, &o);    \
  }
OPTIMIZERS(OPTIMIZER)
#undef OPTIMIZER
static gw_status step_one(void* user, const gw_optimizer_call* call) {
  (void)user;
  (void)call;
  return GW_OK;
}
static gw_status custom_optimizer(gw_custom_optimizer_options* x) {
  gw_optimizer* o = NULL;
  x->step = step_one;
  return gw_custom_optimizer_create(trained, x, &o);
}
static gw_status rule(gw_optimizer_rule* x) {
  gw_sgd_options s;
  gw_sgd_options_init(&s, sizeof s);
  x->pattern = "**";
  s.rules = x;
  s.rule_count = 1;
  return sgd(&s);
}
static gw_module* described(void) {
  gw_module* m = NULL;
  assert_ok(gw_linear_create(2, 2, 0, &m));
  return m;
}
/* A refused module remains described. Its release succeeds and keeps the text of the error. */
static gw_status shard(gw_shard_options* x) {
  gw_module* m = described();
  const gw_status status = gw_fully_shard(m, "", NULL, x);
  gw_module_release(m);
  return status;
}
static gw_status parallel(gw_parallel_options* x) {
  gw_module* m = described();
  const gw_status status = gw_parallelize(m, NULL, x);
  gw_module_release(m);
  return status;
}
static gw_status lora(gw_lora_options* x) {
  gw_module* m = described();
  const gw_status status = gw_lora_apply(m, x);
  gw_module_release(m);
  return status;
}
static gw_status verify_one(gw_verify_options* x) {
  return gw_verify(NULL, build_small_llama, NULL, &batch.batch, x, NULL);
}
static gw_status step(gw_step_options* x) {
  return gw_train_step(trained, optimizer, &batch.batch, x, NULL, NULL);
}
static gw_status generate(gw_generate_options* x) {
  const int64_t prompt[1] = {1};
  int64_t tokens[64];
  size_t count = 0;
  return gw_generate(trained, prompt, 1, x, NULL, tokens, 64, &count);
}

static gw_status movement(gw_movement_options* x) {
  static const int32_t axis = 0;
  gw_gang* const gang = alone();
  gw_partition* partition = NULL;
  gw_movement* made = NULL;
  assert_ok(gw_partition_create(gang, &partition));
  x->axes = &axis;
  x->axis_count = 1;
  const gw_status status = gw_movement_create(partition, NULL, GW_MOVEMENT_ALL_GATHER, x, &made);
  gw_partition_release(partition);
  gw_gang_release(gang);
  return status;
}

static gw_status source(gw_data_source* x) {
  gw_dataset_options o;
  gw_dataset* made = NULL;
  gw_dataset_options_init(&o, sizeof o);
  x->path = "a.u8";
  o.sources = x;
  o.source_count = 1;
  return gw_dataset_create(&o, &made);
}

static gw_status metrics(const gw_metrics_options* o) {
  gw_metrics* made = NULL;
  const gw_status status = gw_metrics_create(trained, o, &made);
  gw_metrics_release(made);
  return status;
}

static const struct {
  double value;
  const char* text;
} kValues[3] = {{INFINITY, " inf"}, {-INFINITY, " -inf"}, {NAN, " nan"}};

/* `says`: the name of the field in the text. */
#define FLOAT(kind, field, says, call)                                             \
  for (int i = 0; i < 3; ++i) {                                                    \
    gw_##kind x;                                                                   \
    gw_##kind##_init(&x, sizeof x);                                                \
    x.field = kValues[i].value;                                                    \
    check_row(#kind "." #field, call(&x), GW_E_INVALID_ARGUMENT, says);            \
    check_row(#kind "." #field, call(&x), GW_E_INVALID_ARGUMENT, kValues[i].text); \
  }

static void fields(void** state) {
  (void)state;
  const gw_decoder_options l = small_llama();
  assert_ok(gw_decoder_create(&l, &trained));
  assert_ok(gw_module_materialize(trained, NULL, 1, GW_F32));
  assert_ok(gw_sgd_create(trained, NULL, &optimizer));
  fill_batch(&batch, 2, 0);
  FLOAT(decoder_options, eps, "options.eps is", decoder)
  FLOAT(decoder_options, rope_theta, "options.rope_theta is", decoder)
  FLOAT(decoder_options, rope_factor, "options.rope_factor is", decoder)
  FLOAT(decoder_options, rope_low_frequency_factor, "options.rope_low_frequency_factor is", decoder)
  FLOAT(decoder_options, rope_high_frequency_factor, "options.rope_high_frequency_factor is", decoder)
  FLOAT(decoder_options, initializer_range, "options.initializer_range is", decoder)
  FLOAT(decoder_options, norm_offset, "options.norm_offset is", decoder)
  FLOAT(decoder_options, embedding_scale, "options.embedding_scale is", decoder)
  FLOAT(decoder_options, score_scale, "options.score_scale is", decoder)
  FLOAT(decoder_options, score_cap, "options.score_cap is", decoder)
  FLOAT(decoder_options, logit_cap, "options.logit_cap is", decoder)
  FLOAT(decoder_options, window_rope_theta, "options.window_rope_theta is", decoder)
  FLOAT(decoder_options, rope_partial, "options.rope_partial is", decoder)
  FLOAT(decoder_options, rope_attention_factor, "options.rope_attention_factor is", decoder)
  FLOAT(decoder_options, rope_beta_fast, "options.rope_beta_fast is", decoder)
  FLOAT(decoder_options, rope_beta_slow, "options.rope_beta_slow is", decoder)
  FLOAT(decoder_options, rope_mscale, "options.rope_mscale is", decoder)
  FLOAT(decoder_options, rope_mscale_all_dim, "options.rope_mscale_all_dim is", decoder)
  FLOAT(decoder_options, embedding_dropout, "options.embedding_dropout is", decoder)
  FLOAT(decoder_options, residual_dropout, "options.residual_dropout is", decoder)
  FLOAT(decoder_options, attention_dropout, "options.attention_dropout is", decoder)
  FLOAT(attention_options, rope_theta, "options.rope_theta is", attention)
  FLOAT(attention_options, initializer_range, "options.initializer_range is", attention)
  FLOAT(attention_options, eps, "options.eps is", attention)
  FLOAT(attention_options, norm_offset, "options.norm_offset is", attention)
  FLOAT(attention_options, score_scale, "options.score_scale is", attention)
  FLOAT(attention_options, score_cap, "options.score_cap is", attention)
  FLOAT(feed_forward_options, initializer_range, "options.initializer_range is", feed_forward)
  FLOAT(init_options, deviation, "initializer.deviation is", init)
  FLOAT(frame_options, loss_scale, "options.loss_scale is", frame)
  FLOAT(metrics_options, peak_flops, "peak_flops = ", metrics)
  OPTIMIZER_FLOATS
  FLOAT(custom_optimizer_options, lr, "lr = ", custom_optimizer)
  FLOAT(custom_optimizer_options, weight_decay, "weight_decay = ", custom_optimizer)
  FLOAT(custom_optimizer_options, ema_decay, "ema_decay = ", custom_optimizer)
  FLOAT(custom_optimizer_options, last_lr_ratio, "last_lr_ratio = ", custom_optimizer)
  FLOAT(custom_optimizer_options, loss_scale, "loss_scale = ", custom_optimizer)
  FLOAT(custom_optimizer_options, initial_loss_scale, "initial_loss_scale = ", custom_optimizer)
  FLOAT(optimizer_rule, lr_scale, "lr_scale = ", rule)
  FLOAT(optimizer_rule, weight_decay, "weight_decay = ", rule)
  FLOAT(shard_options, bucket_cap_mb, "bucket_cap_mb is", shard)
  FLOAT(parallel_options, recompute_ratio, "the recompute ratio is", parallel)
  FLOAT(step_options, max_grad_norm, "step.max_grad_norm = ", step)
  FLOAT(step_options, scale, "scale = ", step)
  FLOAT(step_options, label_smoothing, "label_smoothing = ", step)
  FLOAT(step_options, z_loss, "z_loss = ", step)
  FLOAT(lora_options, alpha, "alpha is", lora)
  FLOAT(lora_options, dropout, "dropout is", lora)
  FLOAT(verify_options, tolerance, "tolerance is", verify_one)
  FLOAT(generate_options, temperature, "temperature = ", generate)
  FLOAT(generate_options, top_p, "top_p = ", generate)
  FLOAT(generate_options, min_p, "min_p = ", generate)
  FLOAT(generate_options, repetition_penalty, "repetition_penalty = ", generate)
  FLOAT(data_source, weight, "options.sources[0].weight is", source)
  FLOAT(movement_options, backward_scale, "options.backward_scale is", movement)
  end_of_table();
}

/* Infinity is a valid norm, that of the largest element. */
static void the_power_of_a_norm(void** state) {
  (void)state;
  gw_step_options x;
  gw_step_options_init(&x, sizeof x);
  x.norm_type = INFINITY;
  x.max_grad_norm = 1;
  assert_ok(step(&x));
  /* exports_test.py looks for this text: FLOAT(step_options, norm_type). Infinity is tested above. */
  x.norm_type = NAN;
  ROW(step(&x), INVALID_ARGUMENT, "step.norm_type = nan");
  x.norm_type = -INFINITY;
  ROW(step(&x), INVALID_ARGUMENT, "step.norm_type = -inf");
  end_of_table();
}

static void arguments(void** state) {
  (void)state;
  gw_attention_options a;
  gw_attention_options_init(&a, sizeof a);
  a.dim = 8;
  a.heads = 2;
  gw_module *m = NULL, *d = described();
  double norm;
  for (int i = 0; i < 3; ++i) {
    const double value = kValues[i].value;
    const char* const text = kValues[i].text;
    ROW(gw_rmsnorm_create(8, value, &m), INVALID_ARGUMENT, text);
    ROW(gw_block_create(&a, 8, value, &m), INVALID_ARGUMENT, text);
    ROW(gw_recompute(d, GW_RECOMPUTE_RATIO, 1, value), INVALID_ARGUMENT, text);
    ROW(gw_recompute(d, GW_RECOMPUTE_FULL, 1, value), INVALID_ARGUMENT, text);
    ROW(gw_optimizer_set_lr(optimizer, value), INVALID_ARGUMENT, text);
    ROW(gw_optimizer_set_loss_scale(optimizer, value), INVALID_ARGUMENT, text);
    ROW(gw_clip_grad_norm(trained, value, 2, NULL, &norm), INVALID_ARGUMENT, text);
  }
  ROW(gw_clip_grad_norm(trained, 1, NAN, NULL, &norm), INVALID_ARGUMENT, "p = nan");
  ROW(gw_clip_grad_norm(trained, 1, -INFINITY, NULL, &norm), INVALID_ARGUMENT, "p = -inf");
  assert_ok(gw_clip_grad_norm(trained, 1, INFINITY, NULL, &norm));
  gw_module_release(d);
  gw_optimizer_release(optimizer);
  gw_module_release(trained);
  end_of_table();
}

int main(void) {
  const struct CMUnitTest tests[] = {test_on_device(fields), test_on_device(the_power_of_a_norm),
                                     test_on_device(arguments)};
  return cmocka_run_group_tests_name("capi_finite", tests, NULL, NULL);
}

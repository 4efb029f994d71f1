/* For every sized struct that a call reads: a call that reads it, and what the defaults of the struct do not
 * have. capi/abi/rules_test.py checks that no struct is missing here or in struct_results_test.c. */
#ifndef GANGWAY_TESTS_CAPI_STRUCT_CALLS_H
#define GANGWAY_TESTS_CAPI_STRUCT_CALLS_H

#include "models.h"
#include "optimizer_rows.h"

/* What the calls use besides the struct. */
typedef struct matrix {
  gw_gang* gang;
  gw_gangs* gangs;
  gw_module* model;
  gw_optimizer* opt;
  gw_partition* partition;
  gw_checkpoints* checkpoints; /* of an empty folder */
  gw_metrics* metrics;
  small_batch batch;
} matrix;

static matrix m;

/* Each function passes `x` (a struct that begins with its size) to a call that reads it, and releases what
 * the call made. */
static gw_status gang_options(void* x) {
  gw_gang* gang = NULL;
  const gw_status status = gw_gang_create(x, &gang);
  gw_gang_release(gang);
  return status;
}
static gw_status store_callbacks(void* x) {
  gw_store* store = NULL;
  const gw_status status = gw_store_create_callbacks(x, &store);
  gw_store_release(store);
  return status;
}
static gw_status collective(void* x) { return gw_gang_run(m.gang, x, NULL, NULL); }
static gw_status mesh_options(void* x) {
  gw_gangs* gangs = NULL;
  const gw_status status = gw_gangs_create(m.gang, x, &gangs);
  gw_gangs_release(gangs);
  return status;
}
static gw_status gang_places(void* x) {
  gw_gangs* gangs = NULL;
  const gw_status status = gw_gangs_create_of(x, &gangs);
  gw_gangs_release(gangs);
  return status;
}
static gw_status movement_options(void* x) {
  gw_movement* movement = NULL;
  const gw_status status = gw_movement_create(m.partition, NULL, GW_MOVEMENT_ALL_GATHER, x, &movement);
  gw_movement_release(movement);
  return status;
}
static gw_status pipeline_options(void* x) {
  gw_pipeline* pipeline = NULL;
  const gw_status status = gw_pipeline_create(m.gang, x, &pipeline);
  gw_pipeline_release(pipeline);
  return status;
}
static gw_status drop(gw_status status, gw_module* model) {
  gw_module_release(model);
  return status;
}
static gw_status decoder_options(void* x) {
  gw_module* model = NULL;
  const gw_status status = gw_decoder_create(x, &model);
  return drop(status, model);
}
static gw_status attention_options(void* x) {
  gw_module* model = NULL;
  const gw_status status = gw_attention_create(x, &model);
  return drop(status, model);
}
static gw_status feed_forward_options(void* x) {
  gw_module* model = NULL;
  const gw_status status = gw_feed_forward_create(x, &model);
  return drop(status, model);
}
static gw_status custom_options(void* x) {
  gw_module* model = NULL;
  const gw_status status = gw_custom_create(x, &model);
  return drop(status, model);
}
static line a_line;
static gw_status parameter_options(void* x) {
  gw_custom_options c;
  gw_module* model = NULL;
  line_options(&c, &a_line, x);
  const gw_status status = gw_custom_create(&c, &model);
  return drop(status, model);
}
static gw_status init_options(void* x) {
  gw_parameter_options p;
  gw_parameter_options_init(&p, sizeof p);
  p.name = "w";
  p.ndim = 1;
  p.dims[0] = 1;
  p.initializer = x;
  return parameter_options(&p);
}
static gw_status frame_options(void* x) {
  gw_frame* frame = NULL;
  const gw_status status = gw_frame_create(m.model, x, &frame);
  gw_frame_release(frame);
  return status;
}
static gw_status with_llama(gw_status (*use)(gw_module* model, void* x), void* x) {
  gw_module* model = NULL;
  const gw_decoder_options o = small_llama();
  assert_ok(gw_decoder_create(&o, &model));
  const gw_status status = use(model, x);
  gw_module_release(model);
  return status;
}
static gw_status use_parallel(gw_module* model, void* x) { return gw_parallelize(model, m.gangs, x); }
static gw_status parallel_options(void* x) { return with_llama(use_parallel, x); }
static gw_status use_lora(gw_module* model, void* x) { return gw_lora_apply(model, x); }
static gw_status lora_options(void* x) { return with_llama(use_lora, x); }
static gw_status use_fp8(gw_module* model, void* x) { return gw_fp8_apply(model, x); }
static gw_status fp8_options(void* x) { return with_llama(use_fp8, x); }
static gw_status use_shard(gw_module* model, void* x) { return gw_fully_shard(model, "", m.gangs, x); }
static gw_status shard_options(void* x) { return with_llama(use_shard, x); }
static gw_status dtype_rule(void* x) {
  gw_shard_options s;
  gw_shard_options_init(&s, sizeof s);
  s.rules = x;
  s.rule_count = 1;
  return shard_options(&s);
}
static gw_status use_tensor_parallel(gw_module* model, void* x) {
  return gw_tensor_parallel(model, m.gangs, x);
}
static gw_status tensor_parallel_options(void* x) { return with_llama(use_tensor_parallel, x); }
static gw_status plan_row(void* x) {
  gw_tensor_parallel_options o;
  gw_tensor_parallel_options_init(&o, sizeof o);
  o.rows = x;
  o.row_count = 1;
  return tensor_parallel_options(&o);
}
#define OPTIMIZER(kind)                                            \
  static gw_status kind##_options(void* x) {                       \
    gw_optimizer* opt = NULL;                                      \
    const gw_status status = gw_##kind##_create(m.model, x, &opt); \
    gw_optimizer_release(opt);                                     \
    return status;                                                 \
  }
OPTIMIZERS(OPTIMIZER)
#undef OPTIMIZER
static gw_status step_one(void* user, const gw_optimizer_call* call) {
  (void)user;
  (void)call;
  return GW_OK;
}
static gw_status custom_optimizer_options(void* x) {
  gw_optimizer* opt = NULL;
  const gw_status status = gw_custom_optimizer_create(m.model, x, &opt);
  gw_optimizer_release(opt);
  return status;
}
static gw_status optimizer_rule(void* x) {
  gw_sgd_options s;
  gw_sgd_options_init(&s, sizeof s);
  s.rules = x;
  s.rule_count = 1;
  return sgd_options(&s);
}
static const char* const token_file = "/tmp/gangway-struct-test.u8";
static gw_status dataset_options(void* x) {
  gw_dataset* dataset = NULL;
  const gw_status status = gw_dataset_create(x, &dataset);
  gw_dataset_release(dataset);
  return status;
}
static gw_status data_source(void* x) {
  gw_dataset_options o;
  gw_dataset_options_init(&o, sizeof o);
  o.sources = x;
  o.source_count = 1;
  return dataset_options(&o);
}
static gw_status checkpoints_options(void* x) {
  gw_checkpoints* checkpoints = NULL;
  const gw_status status = gw_checkpoints_create(NULL, "/tmp/gangway-struct-test/opened", x, &checkpoints);
  gw_checkpoints_release(checkpoints);
  return status;
}
static gw_status checkpoint_part(void* x) {
  int64_t step = 0, tokens = 0;
  return gw_checkpoints_restore(m.checkpoints, x, 1, NULL, &step, &tokens);
}
static gw_status restore_options(void* x) {
  gw_checkpoint_part part;
  gw_checkpoint_part_init(&part, sizeof part);
  part.model = m.model;
  int64_t step = 0, tokens = 0;
  return gw_checkpoints_restore(m.checkpoints, &part, 1, x, &step, &tokens);
}
static gw_status checkpoint_state(void* x) {
  gw_checkpoint_part part;
  gw_checkpoint_part_init(&part, sizeof part);
  part.model = m.model;
  return gw_checkpoints_save(m.checkpoints, &part, 1, x);
}
static gw_status checkpoint_text(void* x) {
  gw_checkpoint_state state;
  gw_checkpoint_state_init(&state, sizeof state);
  state.texts = x;
  state.text_count = 1;
  return checkpoint_state(&state);
}
static gw_status metrics_options(void* x) {
  gw_metrics* metrics = NULL;
  const gw_status status = gw_metrics_create(m.model, x, &metrics);
  gw_metrics_release(metrics);
  return status;
}
static gw_status metrics_step(void* x) {
  gw_step_result result;
  gw_step_result_init(&result, sizeof result);
  return gw_metrics_log(m.metrics, &result, x);
}
static gw_status logged_result(void* x) { return gw_metrics_log(m.metrics, x, NULL); }
static gw_status plan_options(void* x) {
  gw_memory_use memory;
  gw_memory_use_init(&memory, sizeof memory);
  return gw_plan_memory(x, &memory, NULL);
}
static gw_status batch(void* x) { return gw_train_step(m.model, m.opt, x, NULL, NULL, NULL); }
static gw_status step_options(void* x) {
  return gw_train_step(m.model, m.opt, &m.batch.batch, x, NULL, NULL);
}
static gw_status verify_options(void* x) {
  return gw_verify(m.gangs, build_small_llama, NULL, &m.batch.batch, x, NULL);
}
static gw_status generate_options(void* x) {
  const int64_t prompt = 1;
  int64_t out[64];
  size_t count = 0;
  return gw_generate(m.model, &prompt, 1, x, NULL, out, 64, &count);
}
static gw_status save_options(void* x) { return gw_module_save(m.model, "/tmp/gangway-struct-test", x); }
static gw_status load_options(void* x) { return gw_module_load(m.model, "/tmp/gangway-struct-test", x); }

/* What the defaults of a struct do not have. */
static void need_callbacks(void* x) {
  line l;
  gw_custom_options c;
  memset(&l, 0, sizeof l);
  line_options(&c, &a_line, NULL);
  c.parameter_count = 0;
  c.struct_size = ((gw_custom_options*)x)->struct_size;
  memcpy(x, &c, sizeof c);
}
static gw_status put(void* u, const char* k, const void* v, size_t n) {
  return (void)u, (void)k, (void)v, (void)n, GW_OK;
}
static gw_status get(void* u, const char* k, void* v, size_t n, int64_t* s) {
  return (void)u, (void)k, (void)v, (void)n, *s = -1, GW_OK;
}
static gw_status rid(void* u, const char* k) { return (void)u, (void)k, GW_OK; }
static void need_store(void* x) {
  gw_store_callbacks* c = x;
  c->put = put;
  c->get = get;
  c->remove = rid;
}
static void* take_block(void* u, size_t bytes, size_t alignment) {
  return (void)u, aligned_alloc(alignment, bytes);
}
static void give_block(void* u, void* data, size_t bytes) { (void)u, (void)bytes, free(data); }
static void need_functions(void* x) {
  gw_allocator* a = x;
  a->allocate = take_block;
  a->deallocate = give_block;
}
static gw_status allocator(void* x) {
  const gw_status status = gw_allocator_set(x);
  if (status == GW_OK) gw_allocator_set(NULL);
  return status;
}
static void need_barrier(void* x) { ((gw_collective*)x)->op = GW_BARRIER; }
static void need_dims(void* x) {
  ((gw_attention_options*)x)->dim = 8;
  ((gw_attention_options*)x)->heads = 2;
}
static void need_widths(void* x) {
  ((gw_feed_forward_options*)x)->dim = 8;
  ((gw_feed_forward_options*)x)->ffn = 8;
}
static void need_parameter(void* x) {
  gw_parameter_options* p = x;
  p->name = "w";
  p->ndim = 1;
  p->dims[0] = 1;
}
static void need_dtype(void* x) {
  ((gw_dtype_rule*)x)->pattern = "**";
  ((gw_dtype_rule*)x)->dtype = GW_F32;
}
static void need_module(void* x) { ((gw_plan_row*)x)->pattern = "lm_head"; }
static void need_step(void* x) { ((gw_custom_optimizer_options*)x)->step = step_one; }
static void need_pattern(void* x) { ((gw_optimizer_rule*)x)->pattern = "**"; }
static void need_batch(void* x) {
  gw_batch* b = x;
  const size_t size = b->struct_size;
  *b = m.batch.batch;
  b->struct_size = size;
}
static void need_path(void* x) { ((gw_data_source*)x)->path = token_file; }
static void need_source(void* x) {
  static gw_data_source source;
  gw_data_source_init(&source, sizeof source);
  need_path(&source);
  ((gw_dataset_options*)x)->sources = &source;
  ((gw_dataset_options*)x)->source_count = 1;
}
static void need_model(void* x) { ((gw_checkpoint_part*)x)->model = m.model; }
static void need_text(void* x) { ((gw_checkpoint_text*)x)->name = ((gw_checkpoint_text*)x)->text = "x"; }
static void need_decoder(void* x) {
  static gw_decoder_options decoder;
  decoder = small_llama();
  ((gw_plan_options*)x)->decoder = &decoder;
}
static void need_one_token(void* x) { ((gw_generate_options*)x)->token_count = 1; }

static void need_gangs(void* x) {
  gw_gang_places* const p = x;
  p->root = p->dp = p->rdp = p->sdp = p->tp = p->pp = p->cp = m.gang;
}
static void need_microbatch(void* x) { ((gw_pipeline_options*)x)->microbatches = 1; }
static void need_axis(void* x) {
  static const int32_t axis = 0;
  ((gw_movement_options*)x)->axes = &axis;
  ((gw_movement_options*)x)->axis_count = 1;
}

#define INPUT(type, call, need) \
  { #type, sizeof(gw_##type), (void (*)(void*, size_t))(void (*)(void))gw_##type##_init, call, need }
static const struct {
  const char* name;
  size_t size;
  void (*init)(void*, size_t);
  gw_status (*call)(void*);
  void (*need)(void*);
} inputs[] = {INPUT(allocator, allocator, need_functions),
              INPUT(gang_options, gang_options, NULL),
              INPUT(store_callbacks, store_callbacks, need_store),
              INPUT(collective, collective, need_barrier),
              INPUT(mesh_options, mesh_options, NULL),
              INPUT(gang_places, gang_places, need_gangs),
              INPUT(movement_options, movement_options, need_axis),
              INPUT(pipeline_options, pipeline_options, need_microbatch),
              INPUT(decoder_options, decoder_options, NULL),
              INPUT(attention_options, attention_options, need_dims),
              INPUT(feed_forward_options, feed_forward_options, need_widths),
              INPUT(custom_options, custom_options, need_callbacks),
              INPUT(parameter_options, parameter_options, need_parameter),
              INPUT(init_options, init_options, NULL),
              INPUT(frame_options, frame_options, NULL),
              INPUT(lora_options, lora_options, NULL),
              INPUT(fp8_options, fp8_options, NULL),
              INPUT(parallel_options, parallel_options, NULL),
              INPUT(shard_options, shard_options, NULL),
              INPUT(dtype_rule, dtype_rule, need_dtype),
              INPUT(tensor_parallel_options, tensor_parallel_options, NULL),
              INPUT(plan_row, plan_row, need_module),
              OPTIMIZER_INPUTS,
              INPUT(custom_optimizer_options, custom_optimizer_options, need_step),
              INPUT(optimizer_rule, optimizer_rule, need_pattern),
              INPUT(data_source, data_source, need_path),
              INPUT(dataset_options, dataset_options, need_source),
              INPUT(metrics_options, metrics_options, NULL),
              INPUT(metrics_step, metrics_step, NULL),
              INPUT(step_result, logged_result, NULL),
              INPUT(plan_options, plan_options, need_decoder),
              INPUT(batch, batch, need_batch),
              INPUT(step_options, step_options, NULL),
              INPUT(verify_options, verify_options, NULL),
              INPUT(generate_options, generate_options, need_one_token),
              INPUT(save_options, save_options, NULL),
              INPUT(load_options, load_options, NULL),
              INPUT(checkpoints_options, checkpoints_options, NULL),
              INPUT(checkpoint_part, checkpoint_part, need_model),
              INPUT(checkpoint_text, checkpoint_text, need_text),
              INPUT(checkpoint_state, checkpoint_state, NULL),
              INPUT(restore_options, restore_options, NULL)};

#endif

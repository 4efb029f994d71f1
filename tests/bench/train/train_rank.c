/* A training rank of ours, through the C ABI: "setup", then "step N" -> "SECONDS WAIT LOSS CPU" a step, "memory" -> counted
 * bytes. Arguments: socket path, f32 or bf16, rank of an unconnected copy (or -1: the environment decides), then words
 * NAME=VALUE: tp, pp, cp, dp_shard (degrees), sequence_parallel, schedule, microbatches, first_layers ("0,5"); device, strategy
 * ("no_shard"), bf16_moments, and of another model than S32: family, dim, layers, heads, kv_heads, head_dim, ffn, vocab,
 * sequence, batch. */
#include "../common/rank.h"

#include <gangway/gangway.h>

#include "model.h"

#define MOST_STAGES 16

typedef struct training {
  const char *const *words;
  int word_count, copy;
  gw_gang *root;
  gw_gangs *gangs;
  gw_module *model;
  gw_optimizer *optimizer;
  gw_batch batch;
  gw_step_options options;
  gw_view inputs, targets;
  int64_t shape[2];
  int64_t *tokens, *labels;
} training;

static const char *failure(void) {
  gw_error_info e;
  gw_error_info_init(&e, sizeof e);
  gw_last_error(&e);
  return e.message;
}

/* The value of a word, or null. */
static const char *value_of(const training *t, const char *name) {
  const size_t length = strlen(name);
  for (int i = 0; i < t->word_count; ++i)
    if (strncmp(t->words[i], name, length) == 0 && t->words[i][length] == '=')
      return t->words[i] + length + 1;
  return NULL;
}

static int number_of(const training *t, const char *name, int otherwise) {
  const char *value = value_of(t, name);
  return value != NULL ? atoi(value) : otherwise;
}

static gw_status create_gangs(training *t) {
  gw_mesh_options mesh;
  gw_mesh_options_init(&mesh, sizeof mesh);
  mesh.tp = number_of(t, "tp", 1);
  mesh.pp = number_of(t, "pp", 1);
  mesh.cp = number_of(t, "cp", 1);
  gw_gang_options gang;
  gw_gang_options_init(&gang, sizeof gang);
  gang.device = value_of(t, "device");
  const gw_status status = gw_gang_create(&gang, &t->root);
  return status == GW_OK ? gw_gangs_create(t->root, &mesh, &t->gangs) : status;
}

static gw_status parallelize(training *t, int bf16) {
  gw_pipeline_options pipeline;
  gw_pipeline_options_init(&pipeline, sizeof pipeline);
  pipeline.schedule = value_of(t, "schedule");
  gw_parallel_options parallel;
  gw_parallel_options_init(&parallel, sizeof parallel);
  parallel.seed = 1;
  gw_shard_options shard;
  gw_shard_options_init(&shard, sizeof shard);
  if (bf16) shard.param_dtype = GW_BF16;
  if (value_of(t, "strategy") != NULL && strcmp(value_of(t, "strategy"), "no_shard") == 0)
    shard.strategy = GW_NO_SHARD;
  parallel.shard = &shard;
  gw_tensor_parallel_options tensor_parallel;
  gw_tensor_parallel_options_init(&tensor_parallel, sizeof tensor_parallel);
  tensor_parallel.sequence_parallel = number_of(t, "sequence_parallel", 0);
  parallel.tensor_parallel = &tensor_parallel;
  if (number_of(t, "pp", 1) > 1) parallel.pipeline = &pipeline;
  int64_t first_layers[MOST_STAGES];
  const char *at = value_of(t, "first_layers");
  if (at != NULL) {
    parallel.stage_split = GW_STAGE_SPLIT_GIVEN;
    parallel.first_layers = first_layers;
    for (; at != NULL && parallel.first_layer_count < MOST_STAGES;
         at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
      first_layers[parallel.first_layer_count++] = atoi(at);
  }
  return gw_parallelize(t->model, t->gangs, &parallel);
}

static gw_status create(training *t, int bf16) {
  gw_decoder_options decoder;
  gw_decoder_options_init(&decoder, sizeof decoder);
  const char *family = value_of(t, "family");
  gw_status status = family != NULL ? gw_decoder_options_from_family(family, &decoder) : GW_OK;
  decoder.vocab = number_of(t, "vocab", S32_VOCAB);
  decoder.dim = number_of(t, "dim", S32_DIM);
  decoder.layers = number_of(t, "layers", S32_LAYERS);
  decoder.heads = number_of(t, "heads", S32_HEADS);
  decoder.kv_heads = number_of(t, "kv_heads", S32_KV_HEADS);
  decoder.head_dim = number_of(t, "head_dim", 0);
  decoder.ffn = number_of(t, "ffn", S32_FFN);
  const int sequence = number_of(t, "sequence", S32_SEQUENCE);
  if (sequence > decoder.max_positions) decoder.max_positions = sequence;
  gw_adamw_options adamw;
  gw_adamw_options_init(&adamw, sizeof adamw);
  adamw.weight_decay = 0.1;
  if (number_of(t, "bf16_moments", 0)) adamw.moment_dtype = GW_BF16;
  gw_step_options_init(&t->options, sizeof t->options);
  t->options.microbatches = number_of(t, "microbatches", 1);
  if (status == GW_OK) status = create_gangs(t);
  if (status == GW_OK) status = gw_decoder_create(&decoder, &t->model);
  if (status == GW_OK) status = parallelize(t, bf16);
  if (status == GW_OK) status = gw_adamw_create(t->model, &adamw, &t->optimizer);
  return status;
}

/* Random tokens, other ones for each data coordinate, so many rows for each of its ranks; the labels are the next tokens. */
static gw_status fill(training *t) {
  int32_t data = 0, data_count = 1;
  const gw_status status = gw_gangs_data_shard(t->gangs, &data, &data_count);
  if (status != GW_OK) return status;
  const uint64_t vocab = (uint64_t)number_of(t, "vocab", S32_VOCAB);
  t->shape[0] = number_of(t, "batch", S32_BATCH) * gw_gang_size(t->root) / data_count;
  t->shape[1] = number_of(t, "sequence", S32_SEQUENCE);
  const int64_t count = t->shape[0] * t->shape[1];
  t->tokens = malloc((size_t)(count + 1) * sizeof *t->tokens);
  if (t->tokens == NULL) return GW_E_OUT_OF_MEMORY;
  t->labels = t->tokens + 1;
  uint64_t h = 88172645463325252ull + (uint64_t)(t->copy >= 0 ? t->copy : data);
  for (int64_t i = 0; i <= count; ++i) {
    h ^= h << 13;
    h ^= h >> 7;
    h ^= h << 17;
    t->tokens[i] = (int64_t)(h % vocab);
  }
  gw_view_set(&t->inputs, t->tokens, t->shape, 2, GW_I64);
  gw_view_set(&t->targets, t->labels, t->shape, 2, GW_I64);
  gw_batch_init(&t->batch, sizeof t->batch);
  t->batch.inputs = &t->inputs;
  t->batch.targets = &t->targets;
  t->batch.input_count = t->batch.target_count = 1;
  return GW_OK;
}

static void step(bench_driver *driver, training *t, int count) {
  gw_step_result result;
  gw_step_result_init(&result, sizeof result);
  double wait = 0;
  const double start = bench_seconds(), cpu = bench_cpu_seconds(1);
  for (int i = 0; i < count; ++i) {
    if (gw_train_step(t->model, t->optimizer, &t->batch, &t->options, NULL, &result) != GW_OK) {
      bench_reply(driver, "error: %s", failure());
      return;
    }
    wait += result.wait_seconds;
  }
  bench_reply(driver, "%.9g %.9g %.9g %.9g", (bench_seconds() - start) / count, wait / count, result.loss,
              (bench_cpu_seconds(1) - cpu) / count);
}

static void memory(bench_driver *driver, training *t) {
  gw_memory_use m;
  gw_memory_use_init(&m, sizeof m);
  gw_module_memory(t->model, &m);
  bench_reply(driver, "%.0f",
              (double)(m.master + m.copies + m.region_rows + m.gradient_shards + m.gathered +
                       m.full_gradients + m.optimizer + m.activations + m.gradients + m.temporaries));
}

int main(int argc, char **argv) {
  if (argc < 4) return 2;
  static training t;
  t.words = (const char *const *)argv + 4;
  t.word_count = argc - 4;
  t.copy = atoi(argv[3]);
  const char *variable = getenv("RANK");
  const int rank = t.copy >= 0 ? t.copy : variable ? atoi(variable) : 0;
  int32_t major = 0, minor = 0, patch = 0;
  gw_version(&major, &minor, &patch);
  char text[64], line[256];
  snprintf(text, sizeof text, "gangway %d.%d.%d", major, minor, patch);
  bench_driver driver = bench_connect(argv[1], rank, text);
  int ready = 0;
  while (bench_command(&driver, line, sizeof line)) {
    int count = 1;
    if (strcmp(line, "setup") == 0) {
      ready = create(&t, strcmp(argv[2], "bf16") == 0) == GW_OK && fill(&t) == GW_OK;
      if (ready)
        bench_reply(&driver, "ready");
      else
        bench_reply(&driver, "error: %s", failure());
    } else if (ready && sscanf(line, "step %d", &count) == 1) {
      step(&driver, &t, count);
    } else if (ready && strcmp(line, "memory") == 0) {
      memory(&driver, &t);
    } else {
      bench_reply(&driver, "error: %s", line);
    }
  }
  if (!ready) return 1;
  gw_optimizer_release(t.optimizer);
  gw_module_release(t.model);
  gw_gangs_shutdown(t.gangs, -1);
  gw_gangs_release(t.gangs);
  gw_gang_release(t.root);
  free(t.tokens);
  return 0;
}

/* A training rank of ours, through the C ABI: "setup", then "step N" -> "SECONDS WAIT LOSS CPU" a step, "memory" -> counted
 * bytes. Arguments: socket path, f32 or bf16, rank of an unconnected copy (or -1: the environment decides). */
#include "../common/rank.h"

#include <gangway/gangway.h>

#include "model.h"

typedef struct training {
  gw_gangs *gangs;
  gw_module *model;
  gw_optimizer *optimizer;
  gw_batch batch;
  gw_view inputs, targets;
  int64_t tokens[S32_BATCH * S32_SEQUENCE], labels[S32_BATCH * S32_SEQUENCE];
} training;

static const int64_t shape[2] = {S32_BATCH, S32_SEQUENCE};

static const char *failure(void) {
  gw_error_info e;
  gw_error_info_init(&e, sizeof e);
  gw_last_error(&e);
  return e.message;
}

static gw_status create(training *t, int bf16) {
  gw_llama_options llama;
  gw_llama_options_init(&llama, sizeof llama);
  llama.vocab = S32_VOCAB;
  llama.dim = S32_DIM;
  llama.layers = S32_LAYERS;
  llama.heads = S32_HEADS;
  llama.kv_heads = S32_KV_HEADS;
  llama.ffn = S32_FFN;
  gw_parallel_options parallel;
  gw_shard_options shard;
  gw_parallel_options_init(&parallel, sizeof parallel);
  gw_shard_options_init(&shard, sizeof shard);
  parallel.shard = &shard;
  parallel.seed = 1;
  if (bf16) shard.param_dtype = GW_BF16;
  gw_adamw_options adamw;
  gw_adamw_options_init(&adamw, sizeof adamw);
  adamw.weight_decay = 0.1;
  gw_status status = gw_gangs_create(NULL, NULL, &t->gangs);
  if (status == GW_OK) status = gw_llama_create(&llama, &t->model);
  if (status == GW_OK) status = gw_parallelize(t->model, t->gangs, &parallel);
  if (status == GW_OK) status = gw_adamw_create(t->model, &adamw, &t->optimizer);
  return status;
}

/* Random tokens, other ones on each rank; the labels are the next tokens. */
static void fill(training *t, int rank) {
  uint64_t h = 88172645463325252ull + (uint64_t)rank;
  for (int i = 0; i < S32_BATCH * S32_SEQUENCE; ++i) {
    h ^= h << 13;
    h ^= h >> 7;
    h ^= h << 17;
    t->tokens[i] = (int64_t)(h % S32_VOCAB);
  }
  memcpy(t->labels, t->tokens + 1, sizeof t->labels - sizeof t->labels[0]);
  t->labels[S32_BATCH * S32_SEQUENCE - 1] = t->tokens[0];
  gw_view_set(&t->inputs, t->tokens, shape, 2, GW_I64);
  gw_view_set(&t->targets, t->labels, shape, 2, GW_I64);
  gw_batch_init(&t->batch, sizeof t->batch);
  t->batch.inputs = &t->inputs;
  t->batch.targets = &t->targets;
  t->batch.input_count = t->batch.target_count = 1;
  t->batch.shifted = 1;
}

static void step(bench_driver *driver, training *t, int count) {
  gw_step_result result;
  gw_step_result_init(&result, sizeof result);
  double wait = 0;
  const double start = bench_seconds(), cpu = bench_cpu_seconds(1);
  for (int i = 0; i < count; ++i) {
    if (gw_train_step(t->model, t->optimizer, &t->batch, NULL, NULL, &result) != GW_OK) {
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
  const int copy = atoi(argv[3]);
  const char *variable = getenv("RANK");
  const int rank = copy >= 0 ? copy : variable ? atoi(variable) : 0;
  int32_t major = 0, minor = 0, patch = 0;
  gw_version(&major, &minor, &patch);
  char text[64], line[256];
  snprintf(text, sizeof text, "gangway %d.%d.%d", major, minor, patch);
  bench_driver driver = bench_connect(argv[1], rank, text);
  fill(&t, rank);
  int ready = 0;
  while (bench_command(&driver, line, sizeof line)) {
    int count = 1;
    if (strcmp(line, "setup") == 0) {
      ready = create(&t, strcmp(argv[2], "bf16") == 0) == GW_OK;
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
  return 0;
}

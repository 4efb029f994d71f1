/* Trains a small Llama on one rank and prints the loss and the gradient norm of each step, all bits of them:
 *   gpu_steps DEVICE DTYPE STEPS [NAME=VALUE...]
 * DTYPE: f64, f32, or bf16 (products in bf16, masters in f32). Names: dim, layers, heads, kv_heads, ffn, vocab, sequence,
 * batch. Two runs that compute the same print the same. The time of a step goes to the standard error. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gangway/gangway.h>

static int number_of(int argc, char **argv, const char *name, int otherwise) {
  const size_t length = strlen(name);
  for (int i = 4; i < argc; ++i)
    if (strncmp(argv[i], name, length) == 0 && argv[i][length] == '=') return atoi(argv[i] + length + 1);
  return otherwise;
}

static int fail(void) {
  gw_error_info e;
  gw_error_info_init(&e, sizeof e);
  gw_last_error(&e);
  fprintf(stderr, "%s\n", e.message);
  return 1;
}

static int by_size(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

int main(int argc, char **argv) {
  if (argc < 4) {
    fprintf(stderr, "usage: gpu_steps DEVICE DTYPE STEPS [NAME=VALUE...]\n");
    return 2;
  }
  const int steps = atoi(argv[3]);
  gw_gang_options gang_options;
  gw_gang_options_init(&gang_options, sizeof gang_options);
  gang_options.device = argv[1];
  gw_gang *gang = NULL;
  if (gw_gang_create(&gang_options, &gang) != GW_OK) return fail();
  gw_mesh_options mesh;
  gw_mesh_options_init(&mesh, sizeof mesh);
  gw_gangs *gangs = NULL;
  if (gw_gangs_create(gang, &mesh, &gangs) != GW_OK) return fail();

  gw_decoder_options decoder;
  gw_decoder_options_init(&decoder, sizeof decoder);
  decoder.vocab = number_of(argc, argv, "vocab", 256);
  decoder.dim = number_of(argc, argv, "dim", 64);
  decoder.layers = number_of(argc, argv, "layers", 2);
  decoder.heads = number_of(argc, argv, "heads", 4);
  decoder.kv_heads = number_of(argc, argv, "kv_heads", 2);
  decoder.ffn = number_of(argc, argv, "ffn", 176);
  const int64_t sequence = number_of(argc, argv, "sequence", 32), batch = number_of(argc, argv, "batch", 2);
  gw_module *model = NULL;
  if (gw_decoder_create(&decoder, &model) != GW_OK) return fail();
  gw_shard_options shard;
  gw_shard_options_init(&shard, sizeof shard);
  if (strcmp(argv[2], "bf16") == 0) shard.param_dtype = GW_BF16;
  gw_parallel_options parallel;
  gw_parallel_options_init(&parallel, sizeof parallel);
  parallel.seed = 1;
  parallel.shard = &shard;
  if (strcmp(argv[2], "f64") == 0) parallel.master_dtype = GW_F64;
  if (gw_parallelize(model, gangs, &parallel) != GW_OK) return fail();
  gw_adamw_options adamw;
  gw_adamw_options_init(&adamw, sizeof adamw);
  gw_optimizer *optimizer = NULL;
  if (gw_adamw_create(model, &adamw, &optimizer) != GW_OK) return fail();

  const int64_t shape[2] = {batch, sequence}, count = batch * sequence;
  int64_t *tokens = malloc((size_t)(count + 1) * sizeof *tokens);
  double *seconds = malloc((size_t)(steps + 1) * sizeof *seconds);
  if (tokens == NULL || seconds == NULL) return 1;
  uint64_t h = 88172645463325252ull;
  for (int64_t i = 0; i <= count; ++i) {
    h ^= h << 13;
    h ^= h >> 7;
    h ^= h << 17;
    tokens[i] = (int64_t)(h % (uint64_t)decoder.vocab);
  }
  gw_view inputs, targets;
  gw_view_set(&inputs, tokens, shape, 2, GW_I64);
  gw_view_set(&targets, tokens + 1, shape, 2, GW_I64);
  gw_batch data;
  gw_batch_init(&data, sizeof data);
  data.inputs = &inputs;
  data.targets = &targets;
  data.input_count = data.target_count = 1;
  gw_step_options options;
  gw_step_options_init(&options, sizeof options);
  options.max_grad_norm = 1;
  for (int i = 0; i < steps; ++i) {
    gw_step_result result;
    gw_step_result_init(&result, sizeof result);
    if (gw_train_step(model, optimizer, &data, &options, NULL, &result) != GW_OK) return fail();
    printf("%d %.17g %.17g\n", i + 1, result.loss, result.grad_norm);
    seconds[i] = result.seconds;
  }
  qsort(seconds + steps / 5, (size_t)(steps - steps / 5), sizeof *seconds,
        by_size); /* the first fifth warms up */
  if (steps > 0) fprintf(stderr, "median step %.3f ms\n", 1e3 * seconds[steps / 5 + (steps - steps / 5) / 2]);
  free(tokens);
  free(seconds);
  gw_optimizer_release(optimizer);
  gw_module_release(model);
  gw_gangs_shutdown(gangs, -1);
  gw_gangs_release(gangs);
  gw_gang_release(gang);
  return 0;
}

/* Trains a byte-level Llama on a text, sharded over the ranks. llama/ has a longer one, with options.
 *   gangrun -n 2 02_train_llama TEXT FOLDER [STEPS] */
#include "example.h"
enum { kRows = 8, kSequence = 64 };  /* a batch of all ranks together */
static unsigned char text[16 << 20]; /* of a longer file, the beginning */

int main(int count, char **arguments) {
  FILE *file = count > 2 ? fopen(arguments[1], "rb") : NULL;
  const size_t size = file != NULL ? fread(text, 1, sizeof text, file) : 0;
  if (size <= kSequence)
    return fprintf(stderr, "usage: 02_train_llama TEXT FOLDER [STEPS]; TEXT: over %d bytes\n", kSequence), 2;
  const int steps = count > 3 ? atoi(arguments[3]) : 200; fclose(file);

  WITH_DEFAULTS(gw_llama_options, llama); llama.dim = 64; llama.layers = 2; llama.heads = 4;
  WITH_DEFAULTS(gw_parallel_options, parallel); parallel.strategy = GW_FULL_SHARD; parallel.seed = 1;
  WITH_DEFAULTS(gw_adamw_options, adamw); adamw.lr = 3e-3;
  gw_gangs *gangs; gw_module *model; gw_optimizer *opt;
  check(gw_gangs_create(NULL, NULL, &gangs)); check(gw_llama_create(&llama, &model));
  check(gw_parallelize(model, gangs, &parallel)); check(gw_adamw_create(model, &adamw, &opt));

  int32_t shard, shards; check(gw_gangs_data_shard(gangs, &shard, &shards));
  const int first = kRows * shard / shards, last = kRows * (shard + 1) / shards; /* this rank's rows */
  int64_t tokens[kRows][kSequence], sample[64]; size_t length; gw_view rows;
  check(gw_view_set(&rows, tokens, (int64_t[]){last - first, kSequence}, 2, GW_I64));
  WITH_DEFAULTS(gw_batch, batch); /* the labels are the tokens: the library shifts them */
  batch.inputs = batch.targets = &rows; batch.input_count = batch.target_count = 1;
  WITH_DEFAULTS(gw_step_result, result); WITH_DEFAULTS(gw_step_options, options); options.max_grad_norm = 1;
  for (int step = 1; step <= steps; ++step) {
    for (int row = first; row < last; ++row) { /* its place depends on step and row alone, so on no mesh */
      const uint64_t start = (uint64_t)(step * kRows + row) * 0x9E3779B97F4A7C15 % (size - kSequence);
      for (uint64_t i = 0; i < kSequence; ++i) tokens[row - first][i] = text[start + i];
    }
    check(gw_train_step(model, opt, &batch, &options, NULL, &result));
    if (shard == 0 && (step == 1 || step % 20 == 0))
      printf("step %d/%d  loss %.3f  %.0f tokens/s\n", step, steps, result.loss, result.tokens_per_second);
  }
  WITH_DEFAULTS(gw_generate_options, sampling); sampling.token_count = 64; sampling.temperature = 0.8;
  check(gw_generate(model, (int64_t[]){'T', 'h', 'e', ' '}, 4, &sampling, NULL, sample, 64, &length));
  for (size_t i = 0; i < length; ++i) text[i] = (unsigned char)sample[i];
  if (shard == 0) printf("sample: The %.*s\n", (int)length, (const char *)text);
  check(gw_module_save(model, arguments[2], NULL)); /* Hugging Face's names, safetensors */
  gw_optimizer_release(opt); gw_module_release(model);
  check(gw_gangs_shutdown(gangs, -1)); gw_gangs_release(gangs);
  return 0;
}

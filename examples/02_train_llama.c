/* Trains a byte-level Llama on a text, over any mesh of ranks. gw-train has more options.
 *   gangrun -n 2 02_train_llama TEXT FOLDER [STEPS] [NAME=VALUE ...]
 *   gangrun -n 8 02_train_llama TEXT FOLDER 100 dp_shard=2 tp=2 pp=2 schedule=zbv microbatches=4 */
#include "example.h"
#include "settings.h"
enum { kRows = 8, kSequence = 64 };  /* a batch of all ranks together */
static unsigned char text[16 << 20]; /* of a longer file, the beginning */

int main(int count, char **arguments) {
  WITH_DEFAULTS(gw_gang_options, gang); /* where it is started, and on which device: cpu or cuda */
  WITH_DEFAULTS(gw_mesh_options, mesh); /* degrees; dp_shard is what the others leave */
  WITH_DEFAULTS(gw_shard_options, shard);
  WITH_DEFAULTS(gw_tensor_parallel_options, tensor);
  WITH_DEFAULTS(gw_pipeline_options, pipeline);
  WITH_DEFAULTS(gw_parallel_options, parallel);
  WITH_DEFAULTS(gw_step_options, step_options);
  const setting settings[] = {
      {"device", .text = &gang.device},
      {"dp_replicate", .number = &mesh.dp_replicate},
      {"dp_shard", .number = &mesh.dp_shard},
      {"cp", .number = &mesh.cp},
      {"tp", .number = &mesh.tp},
      {"pp", .number = &mesh.pp},
      {"strategy", .number = &shard.strategy, .words = {"full_shard", "shard_grad_op", "no_shard"}},
      {"sequence_parallel", .number = &tensor.sequence_parallel},
      {"loss_parallel", .number = &tensor.loss_parallel},
      {"context_method", .number = &parallel.context_method, .words = {"ring", "all_gather", "all_to_all"}},
      {"recompute", .number = &parallel.recompute, .words = {"none", "full", "selective"}},
      {"schedule", .text = &pipeline.schedule},
      {"stages_per_rank", .number = &pipeline.stages_per_rank},
      {"microbatches", .number = &step_options.microbatches},
  };
  FILE *file = count > 2 ? fopen(arguments[1], "rb") : NULL;
  const size_t size = file != NULL ? fread(text, 1, sizeof text, file) : 0;
  int good = size > kSequence;
  for (int i = 4; i < count; ++i)
    good = good && set(settings, sizeof settings / sizeof *settings, arguments[i]);
  if (!good)
    return fprintf(stderr, "usage: 02_train_llama TEXT FOLDER [STEPS] [NAME=VALUE ...]\n"
                           "TEXT has over %d bytes\n", kSequence), 2;
  fclose(file);
  const int steps = count > 3 ? atoi(arguments[3]) : 200;

  WITH_DEFAULTS(gw_decoder_options, llama);
  llama.dim = 64;
  llama.layers = 4;
  llama.heads = 4;
  parallel.shard = &shard;
  parallel.tensor_parallel = &tensor;
  parallel.pipeline = &pipeline;
  parallel.seed = 1;
  WITH_DEFAULTS(gw_adamw_options, adamw);
  adamw.lr = 3e-3;
  gw_gangs *gangs = NULL;
  gw_gang *root = NULL;
  gw_module *model = NULL;
  gw_optimizer *opt = NULL;
  check(gw_gang_create(&gang, &root));
  check(gw_gangs_create(root, &mesh, &gangs));
  check(gw_decoder_create(&llama, &model));
  check(gw_parallelize(model, gangs, &parallel));
  check(gw_adamw_create(model, &adamw, &opt));

  int32_t part = 0, parts = 1; /* of the rows, the same for ranks of one tp, cp and pp */
  check(gw_gangs_data_shard(gangs, &part, &parts));
  const int first = kRows * part / parts, last = kRows * (part + 1) / parts;
  int64_t tokens[kRows][kSequence];
  gw_view rows;
  check(gw_view_set(&rows, tokens, (int64_t[]){last - first, kSequence}, 2, GW_I64));
  WITH_DEFAULTS(gw_batch, batch); /* tokens alone: the library makes the labels, which are the next tokens */
  batch.inputs = &rows;
  batch.input_count = 1;
  WITH_DEFAULTS(gw_step_result, result);
  step_options.max_grad_norm = 1;
  const int talks = gw_gang_rank(root) == 0;
  for (int step = 1; step <= steps; ++step) {
    for (int row = first; row < last; ++row) { /* its place depends on step and row alone, so on no mesh */
      const uint64_t start = (uint64_t)(step * kRows + row) * 0x9E3779B97F4A7C15 % (size - kSequence);
      for (uint64_t i = 0; i < kSequence; ++i) tokens[row - first][i] = text[start + i];
    }
    check(gw_train_step(model, opt, &batch, &step_options, NULL, &result));
    if (talks && (step == 1 || step % 20 == 0))
      printf("step %d/%d  loss %.3f  %.0f tokens/s\n", step, steps, result.loss, result.tokens_per_second);
  }
  int64_t sample[64];
  size_t length = 0;
  check(gw_generate(model, (int64_t[]){'T', 'h', 'e', ' '}, 4, NULL, NULL, sample, 64, &length));
  for (size_t i = 0; i < length; ++i) text[i] = (unsigned char)sample[i];
  if (talks) printf("sample: The %.*s\n", (int)length, (const char *)text);
  check(gw_module_save(model, arguments[2], NULL)); /* Hugging Face's names, safetensors */
  gw_optimizer_release(opt);
  gw_module_release(model);
  gw_gang_release(root);
  check(gw_gangs_shutdown(gangs, -1));
  gw_gangs_release(gangs);
  return 0;
}

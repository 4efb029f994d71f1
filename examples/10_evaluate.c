/* Evaluation and reload: the loss of a model on a text that it is not trained on, and the same loss of a
 * model that is made of the saved folder.
 *   gangrun -n 2 10_evaluate TEXT HELD_OUT_TEXT FOLDER */
#include "example.h"

enum { kSequence = 32, kBatch = 8, kBatches = 4, kSteps = 20, kEvery = 10 };

static gw_dataset *open_text(const char *path) {
  WITH_DEFAULTS(gw_data_source, source);
  source.path = path;
  source.format = "u8"; /* a token is a byte */
  WITH_DEFAULTS(gw_dataset_options, rows);
  rows.sources = &source;
  rows.source_count = 1;
  rows.sequence = kSequence;
  rows.seed = 1;
  gw_dataset *data = NULL;
  check(gw_dataset_create(&rows, &data));
  return data;
}

/* The mean loss over the same rows at each call. It changes nothing of the model. */
static double evaluate(gw_module *model, gw_dataset *data, gw_gangs *gangs) {
  WITH_DEFAULTS(gw_data_batch, batch);
  WITH_DEFAULTS(gw_step_result, result);
  double sum = 0;
  check(gw_dataset_set_rows_taken(data, 0));
  for (int i = 0; i < kBatches; ++i) {
    check(gw_dataset_next(data, gangs, kBatch, &batch));
    check(gw_eval_step(model, batch.batch, NULL, NULL, &result));
    sum += result.loss;
  }
  return sum / kBatches;
}

int main(int count, char **arguments) {
  if (count != 4) return fprintf(stderr, "usage: 10_evaluate TEXT HELD_OUT_TEXT FOLDER\n"), 2;
  const char *const folder = arguments[3];
  WITH_DEFAULTS(gw_decoder_options, llama);
  llama.dim = 32;
  llama.layers = 2;
  llama.heads = 2;
  WITH_DEFAULTS(gw_parallel_options, parallel);
  parallel.seed = 1;
  WITH_DEFAULTS(gw_adamw_options, adamw);
  adamw.lr = 3e-3;

  gw_gangs *gangs = NULL;
  gw_module *model = NULL, *reloaded = NULL;
  gw_optimizer *opt = NULL;
  check(gw_gangs_create(NULL, NULL, &gangs));
  check(gw_decoder_create(&llama, &model));
  check(gw_parallelize(model, gangs, &parallel));
  check(gw_adamw_create(model, &adamw, &opt));
  gw_dataset *data = open_text(arguments[1]), *validation = open_text(arguments[2]);
  int32_t rank = 0, ranks = 1;
  check(gw_gangs_data_shard(gangs, &rank, &ranks));

  WITH_DEFAULTS(gw_data_batch, batch);
  double loss = 0;
  for (int step = 1; step <= kSteps; ++step) {
    check(gw_dataset_next(data, gangs, kBatch, &batch));
    check(gw_train_step(model, opt, batch.batch, NULL, NULL, NULL));
    if (step % kEvery != 0) continue;
    loss = evaluate(model, validation, gangs);
    if (rank == 0) printf("step %d  validation loss %.6f\n", step, loss);
  }

  check(gw_module_save(model, folder, NULL)); /* Hugging Face's names, safetensors */
  check(gw_model_from_folder(gangs, folder, NULL, &reloaded));
  const double again = evaluate(reloaded, validation, gangs);
  if (rank == 0) printf("reloaded  validation loss %.6f\n", again);

  gw_dataset_release(validation);
  gw_dataset_release(data);
  gw_optimizer_release(opt);
  gw_module_release(reloaded);
  gw_module_release(model);
  check(gw_gangs_shutdown(gangs, -1));
  gw_gangs_release(gangs);
  return again == loss ? 0 : 1;
}

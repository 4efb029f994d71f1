/* A run that outlives its ranks: every 5 steps it saves all that changes the next step, and a program that is
 * started again goes on from the newest checkpoint, with the losses of a run that was never stopped.
 *   gangrun -n 2 --max-restarts 2 09_resume TEXT FOLDER [DIE]
 * DIE: before this step rank 1 kills itself, in the first attempt alone. */
#include "example.h"
#include <signal.h>
enum { kSequence = 32, kBatch = 8, kSteps = 20, kEvery = 5 };

/* Goes to the newest checkpoint, if the folder has one. */
static void restore(gw_checkpoints *run, const gw_checkpoint_part *part, gw_dataset *data, int talks) {
  int64_t step = -1, tokens = 0;
  check(gw_checkpoints_restore(run, part, 1, NULL, &step, &tokens));
  if (step < 0) return;
  char position[4096];
  size_t length = 0;
  check(gw_checkpoints_text(run, "data", position, sizeof position, &length));
  check(gw_dataset_restore(data, position, 0));
  if (talks) printf("goes on after step %d\n", (int)step);
}

/* Returns when the values are copied; the library writes them while training goes on. */
static void save(gw_checkpoints *run, const gw_checkpoint_part *part, const gw_dataset *data, int64_t step) {
  char position[4096];
  size_t length = 0;
  check(gw_dataset_position(data, position, sizeof position, &length));
  WITH_DEFAULTS(gw_checkpoint_text, text);
  text.name = "data";
  text.text = position;
  WITH_DEFAULTS(gw_checkpoint_state, state);
  state.step = step;
  state.tokens = step * kBatch * kSequence;
  state.texts = &text;
  state.text_count = 1;
  check(gw_checkpoints_save(run, part, 1, &state));
}

int main(int count, char **arguments) {
  if (count < 3) return fprintf(stderr, "usage: 09_resume TEXT FOLDER [DIE]\n"), 2;
  const char *const restarts = getenv("GANGWAY_RESTART_COUNT"); /* set by gangrun */
  const int die = count > 3 && (restarts == NULL || atoi(restarts) == 0) ? atoi(arguments[3]) : 0;
  WITH_DEFAULTS(gw_decoder_options, llama);
  llama.dim = 32;
  llama.layers = 2;
  llama.heads = 2;
  WITH_DEFAULTS(gw_parallel_options, parallel);
  parallel.seed = 1;
  WITH_DEFAULTS(gw_adamw_options, adamw);
  adamw.lr = 3e-3;
  WITH_DEFAULTS(gw_data_source, source);
  source.path = arguments[1];
  source.format = "u8"; /* a token is a byte */
  WITH_DEFAULTS(gw_dataset_options, rows);
  rows.sources = &source;
  rows.source_count = 1;
  rows.sequence = kSequence;
  rows.seed = 1;
  WITH_DEFAULTS(gw_checkpoints_options, checkpoints);
  checkpoints.every = kEvery;

  gw_gangs *gangs = NULL;
  gw_module *model = NULL;
  gw_optimizer *opt = NULL;
  gw_dataset *data = NULL;
  gw_checkpoints *run = NULL;
  check(gw_gangs_create(NULL, NULL, &gangs));
  check(gw_decoder_create(&llama, &model));
  check(gw_parallelize(model, gangs, &parallel));
  check(gw_adamw_create(model, &adamw, &opt));
  check(gw_dataset_create(&rows, &data));
  check(gw_checkpoints_create(gangs, arguments[2], &checkpoints, &run));
  int32_t rank = 0, ranks = 1; /* over dp alone each rank has a part of the rows */
  check(gw_gangs_data_shard(gangs, &rank, &ranks));
  WITH_DEFAULTS(gw_checkpoint_part, part);
  part.model = model;
  part.optimizer = opt;
  restore(run, &part, data, rank == 0);

  WITH_DEFAULTS(gw_data_batch, batch);
  WITH_DEFAULTS(gw_step_result, result);
  int64_t step = 0;
  int32_t due = 0;
  check(gw_dataset_batches_taken(data, &step));
  while (step < kSteps) {
    if (++step == die && rank == 1) raise(SIGKILL);
    check(gw_dataset_next(data, gangs, kBatch, &batch));
    check(gw_train_step(model, opt, batch.batch, NULL, NULL, &result));
    if (rank == 0) printf("step %d  loss %.17f\n", (int)step, result.loss);
    check(gw_checkpoints_due(run, step, &due));
    if (due) save(run, &part, data, step);
  }
  check(gw_checkpoints_wait(run)); /* until the last one is written */
  gw_checkpoints_release(run);
  gw_dataset_release(data);
  gw_optimizer_release(opt);
  gw_module_release(model);
  check(gw_gangs_shutdown(gangs, -1));
  gw_gangs_release(gangs);
  return 0;
}

#include "models.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct run {
  gw_gangs* gangs;
  gw_module* model;
  gw_optimizer* opt;
  gw_checkpoint_part part;
} run;

static gw_status begin(run* r, gw_gang* gang, uint64_t seed) {
  memset(r, 0, sizeof *r);
  const gw_decoder_options o = small_llama();
  gw_parallel_options p;
  gw_parallel_options_init(&p, sizeof p);
  p.seed = seed;
  gw_status status = gw_gangs_create(gang, NULL, &r->gangs);
  if (status == GW_OK) status = gw_decoder_create(&o, &r->model);
  if (status == GW_OK) status = gw_parallelize(r->model, r->gangs, &p);
  if (status == GW_OK) status = gw_adamw_create(r->model, NULL, &r->opt);
  gw_checkpoint_part_init(&r->part, sizeof r->part);
  r->part.model = r->model;
  r->part.optimizer = r->opt;
  return status;
}
static void end(run* r) {
  gw_optimizer_release(r->opt);
  gw_module_release(r->model);
  gw_gangs_release(r->gangs);
}
static double loss_of_step(run* r, int64_t number) {
  small_batch batch;
  fill_batch(&batch, 2, number);
  gw_step_result result;
  gw_step_result_init(&result, sizeof result);
  return gw_train_step(r->model, r->opt, &batch.batch, NULL, NULL, &result) == GW_OK ? result.loss : -1;
}

static void saves_and_restores(rank* me) {
  run r;
  gw_checkpoints* checkpoints = NULL;
  gw_checkpoints_options o;
  gw_checkpoints_options_init(&o, sizeof o);
  EXPECT(o.keep == 3 && o.every == 0 && o.synchronous == 0 && o.max_file_bytes == INT64_C(5) << 30);
  o.every = 2;
  EXPECT_OK(begin(&r, me->gang, 5));
  EXPECT_REFUSED(gw_checkpoints_create(r.gangs, me->index == 0 ? "" : me->user, &o, &checkpoints),
                 "the folder's name is empty");
  EXPECT_OK(gw_checkpoints_create(r.gangs, me->user, &o, &checkpoints));
  int64_t step = 7, tokens = 7;
  EXPECT_OK(gw_checkpoints_restore(checkpoints, &r.part, 1, NULL, &step, &tokens));
  EXPECT(step == -1 && tokens == 0);
  size_t length = 0;
  EXPECT(gw_checkpoints_text(checkpoints, "data", NULL, 0, &length) == GW_E_INVALID_STATE);

  EXPECT(loss_of_step(&r, 0) > 0);
  int32_t due = 0;
  EXPECT_OK(gw_checkpoints_due(checkpoints, 2, &due));
  EXPECT(due == 1);
  EXPECT_OK(gw_checkpoints_due(checkpoints, 3, &due));
  EXPECT(due == 0);
  gw_checkpoint_text text;
  gw_checkpoint_text_init(&text, sizeof text);
  text.name = "data";
  text.text = "row 12";
  gw_checkpoint_state state;
  gw_checkpoint_state_init(&state, sizeof state);
  state.step = 2;
  state.tokens = 12;
  state.texts = &text;
  state.text_count = 1;
  state.user = "own\0bytes";
  state.user_size = 9;
  EXPECT_REFUSED(gw_checkpoints_save(checkpoints, me->index == me->size - 1 ? NULL : &r.part, 1, &state),
                 "parts is null");
  EXPECT_OK(gw_checkpoints_save(checkpoints, &r.part, 1, &state));
  const double wanted = loss_of_step(&r, 1);
  EXPECT_OK(gw_checkpoints_wait(checkpoints));
  uint64_t bytes = 0;
  EXPECT_OK(gw_checkpoints_buffer_bytes(checkpoints, &bytes));
  gw_memory_use use;
  gw_memory_use_init(&use, sizeof use);
  EXPECT_OK(gw_module_memory(r.model, &use));
  EXPECT(bytes > 0 && use.host == bytes);
  gw_checkpoints_release(checkpoints);
  end(&r);

  EXPECT_OK(begin(&r, me->gang, 6));
  EXPECT_OK(gw_checkpoints_create(r.gangs, me->user, NULL, &checkpoints));
  gw_restore_options options;
  gw_restore_options_init(&options, sizeof options);
  EXPECT(options.step == -1);
  options.step = -2;
  EXPECT_REFUSED(gw_checkpoints_restore(checkpoints, &r.part, 1, &options, &step, &tokens),
                 "options.step is -2");
  EXPECT_OK(gw_checkpoints_restore(checkpoints, &r.part, 1, NULL, &step, &tokens));
  EXPECT(step == 2 && tokens == 12);
  char found[16], notes[80], small[3];
  EXPECT_OK(gw_checkpoints_text(checkpoints, "data", found, sizeof found, &length));
  EXPECT(length == 6 && strcmp(found, "row 12") == 0);
  EXPECT(gw_checkpoints_text(checkpoints, "none", found, sizeof found, &length) == GW_E_NOT_FOUND);
  EXPECT_OK(gw_checkpoints_user(checkpoints, NULL, 0, &length));
  EXPECT(length == 9);
  EXPECT_REFUSED(gw_checkpoints_user(checkpoints, small, sizeof small, &length), "capacity is 3");
  EXPECT_OK(gw_checkpoints_user(checkpoints, found, sizeof found, &length));
  EXPECT(memcmp(found, "own\0bytes", 9) == 0);
  EXPECT_OK(gw_checkpoints_notes(checkpoints, notes, sizeof notes, &length));
  EXPECT(strcmp(notes, "seed: 5 in the checkpoint, 6 now\n") == 0);
  int64_t steps = 0;
  EXPECT_OK(gw_optimizer_steps(r.opt, &steps));
  EXPECT(steps == 1);
  EXPECT(loss_of_step(&r, 1) == wanted);

  char states[120];
  snprintf(states, sizeof states, "%s/step-00000002/optimizer.safetensors", (const char*)me->user);
  EXPECT_OK(gw_optimizer_load(r.opt, states));
  EXPECT_REFUSED(gw_optimizer_load(r.opt, me->index == me->size - 1 ? NULL : states), "path is null");
  gw_checkpoints_release(gw_checkpoints_retain(checkpoints));
  gw_checkpoints_release(checkpoints);
  end(&r);
}

static void what_is_saved_is_restored(void** state) {
  (void)state;
  for (int32_t n = 1; n <= 3; n += 2) {
    char folder[] = "/tmp/gangway-run-XXXXXX", command[80];
    assert_non_null(mkdtemp(folder));
    run_ranks(n, saves_and_restores, folder);
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
  }
}

static void an_optimizer_continues_where_the_caller_says(void** state) {
  (void)state;
  gw_module* model = materialized_llama();
  gw_optimizer* opt = NULL;
  assert_ok(gw_adamw_create(model, NULL, &opt));
  assert_ok(gw_optimizer_set_steps(opt, 9));
  int64_t steps = 0;
  double lr = 0, scale = 0;
  assert_ok(gw_optimizer_steps(opt, &steps));
  assert_int_equal(steps, 9);
  assert_refused(gw_optimizer_set_steps(opt, -1), "steps = -1 is below 0");
  assert_ok(gw_optimizer_set_lr(opt, 0.5));
  assert_ok(gw_optimizer_base_lr(opt, &lr));
  assert_true(lr == 0.5);
  assert_ok(gw_optimizer_restore_loss_scale(opt, 4, 3));
  assert_ok(gw_optimizer_loss_scale(opt, &scale));
  assert_ok(gw_optimizer_finite_steps(opt, &steps));
  assert_true(scale == 4 && steps == 3);
  assert_refused(gw_optimizer_restore_loss_scale(opt, 4, -1), "finite steps = -1 is below 0");
  gw_optimizer_release(opt);
  gw_module_release(model);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_saved_is_restored),
                                     cmocka_unit_test(an_optimizer_continues_where_the_caller_says)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

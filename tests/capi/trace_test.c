/* The contents of trace files. tests/tools/trace_test.sh reads the files as JSON. */
#include <sys/stat.h>
#include <unistd.h>

#include "testing.h"

static char folder[64];

/* The whole file of a rank, which the caller frees; null if it does not exist. */
static char* content_of(int32_t rank) {
  char path[128];
  snprintf(path, sizeof path, "%s/rank-%d.json", folder, (int)rank);
  FILE* file = fopen(path, "rb");
  if (file == NULL) return NULL;
  char* content = calloc(1, 4 << 20);
  if (content != NULL) content[fread(content, 1, (4 << 20) - 1, file)] = '\0';
  fclose(file);
  return content;
}

static int count_of(const char* content, const char* word) {
  int count = 0;
  for (const char* at = content; (at = strstr(at, word)) != NULL; at += strlen(word)) ++count;
  return count;
}

/* Trains over pp, with two microbatches in each of two steps. Only the first step is traced. */
static void train(rank* me) {
  gw_mesh_options mesh;
  gw_mesh_options_init(&mesh, sizeof mesh);
  mesh.pp = me->size;
  gw_decoder_options llama = small_llama();
  llama.layers = 2;
  gw_step_options step;
  gw_step_options_init(&step, sizeof step);
  step.microbatches = 2;
  small_batch batch;
  fill_batch(&batch, 4, 0);
  gw_gangs* gangs = NULL;
  gw_module* model = NULL;
  gw_optimizer* optimizer = NULL;
  EXPECT_OK(gw_gangs_create(me->gang, &mesh, &gangs));
  EXPECT_OK(gw_decoder_create(&llama, &model));
  EXPECT_OK(gw_parallelize(model, gangs, NULL));
  EXPECT_OK(gw_adamw_create(model, NULL, &optimizer));
  EXPECT_OK(gw_gang_begin_trace(me->gang, folder));
  EXPECT_STATUS(gw_gang_begin_trace(me->gang, folder), GW_E_INVALID_STATE, "it is on already");
  EXPECT_OK(gw_train_step(model, optimizer, &batch.batch, &step, NULL, NULL));
  EXPECT_OK(gw_gang_end_trace(me->gang));
  EXPECT_OK(gw_gang_end_trace(me->gang));
  EXPECT_OK(gw_train_step(model, optimizer, &batch.batch, &step, NULL, NULL));
  gw_optimizer_release(optimizer);
  gw_module_release(model);
  gw_gangs_release(gangs);
}

static void make_folder(void) {
  snprintf(folder, sizeof folder, "/tmp/gangway-trace-XXXXXX");
  assert_non_null(mkdtemp(folder));
}
static void remove_folder(int32_t ranks) {
  for (int32_t r = 0; r < ranks; ++r) {
    char path[128];
    snprintf(path, sizeof path, "%s/rank-%d.json", folder, (int)r);
    unlink(path);
  }
  rmdir(folder);
}

static void each_rank_tells_what_it_did(void** state) {
  (void)state;
  make_folder();
  run_ranks(2, train, NULL);
  for (int32_t r = 0; r < 2; ++r) {
    char* content = content_of(r);
    assert_non_null(content);
    assert_int_equal(strncmp(content, "[\n{", 3), 0);
    assert_string_equal(content + strlen(content) - 3, "\n]\n");
    /* It contains the traced step and no other. */
    assert_int_equal(count_of(content, "\"name\": \"train_step\""), 1);
    assert_int_equal(count_of(content, "\"name\": \"update\""), 1);
    /* It contains both microbatches of this rank's stage, forward and backward, and no other stage. */
    for (int m = 0; m < 2; ++m)
      for (int kind = 0; kind < 2; ++kind)
        for (int stage = 0; stage < 2; ++stage) {
          char action[40];
          snprintf(action, sizeof action, "\"name\": \"%d%c%d\", \"cat\": \"compute\"", stage, "FB"[kind], m);
          assert_int_equal(count_of(content, action), stage == r);
        }
    /* This rank's layer computes once for each microbatch, and so does each half of its backward. A GPU computes q, k and v
     * as one. */
    char name[80];
    snprintf(name, sizeof name, "\"name\": \"model.layers.%d.self_attn.o_proj\"", (int)r);
    assert_int_equal(count_of(content, name), 2 * 3);
    snprintf(name, sizeof name, "\"name\": \"model.layers.%d.", 1 - (int)r);
    assert_int_equal(count_of(content, name), 0);
    /* It contains the messages between the stages, each with a begin and an end. */
    assert_int_equal(count_of(content, r == 0 ? "\"name\": \"send\"" : "\"name\": \"recv\"") / 2 >= 2, 1);
    assert_int_equal(count_of(content, "\"ph\": \"b\""), count_of(content, "\"ph\": \"e\""));
    assert_true(count_of(content, "\"channel\": \"control\"") > 0);
    free(content);
  }
  remove_folder(2);
}

static void begin_twice(rank* me) {
  EXPECT_OK(gw_gang_begin_trace(me->gang, folder));
  EXPECT_OK(gw_gang_end_trace(me->gang));
  EXPECT_OK(gw_gang_begin_trace(me->gang, folder));
  EXPECT_OK(gw_gang_barrier(me->gang, NULL));
}

static void a_second_trace_has_a_file_of_its_own(void** state) {
  (void)state;
  make_folder();
  run_ranks(1, begin_twice, NULL); /* the end of the rank ends the trace */
  char path[128], line[256];
  snprintf(path, sizeof path, "%s/rank-0.2.json", folder);
  FILE* file = fopen(path, "rb");
  assert_non_null(file);
  int barriers = 0, complete = 0;
  while (fgets(line, sizeof line, file) != NULL) {
    barriers +=
        strstr(line, "\"name\": \"barrier\"") != NULL && strstr(line, "\"channel\": \"user\"") != NULL;
    complete = strcmp(line, "]\n") == 0;
  }
  fclose(file);
  assert_int_equal(barriers, 1);
  assert_true(complete);
  unlink(path);
  remove_folder(1);
}

static void refused(rank* me) {
  EXPECT_REFUSED(gw_gang_begin_trace(me->gang, NULL), "the folder's name is empty");
  /* One rank cannot write, so no rank traces. */
  EXPECT_STATUS(gw_gang_begin_trace(me->gang, me->index == 1 ? "/dev/null/x" : folder), GW_E_IO,
                "/dev/null/x");
  EXPECT_OK(gw_gang_begin_trace(me->gang, folder));
  EXPECT_OK(gw_gang_end_trace(me->gang));
  gw_gang* part = NULL; /* its ranks have other numbers than those of the root */
  EXPECT_OK(gw_gang_split(me->gang, me->index, 0, &part));
  EXPECT_REFUSED(gw_gang_begin_trace(part, folder), "is no root gang");
  gw_gang_release(part);
  EXPECT_STATUS(gw_gang_begin_trace(NULL, folder), GW_E_INVALID_ARGUMENT, NULL);
}

static void a_refusal_is_heard_by_all(void** state) {
  (void)state;
  make_folder();
  run_ranks(2, refused, NULL);
  /* Of the trace that was begun, under the first name. */
  for (int r = 0; r < 2; ++r) {
    char* content = content_of(r);
    assert_non_null(content);
    assert_string_equal(content + strlen(content) - 3, "\n]\n");
    free(content);
  }
  remove_folder(2);
  assert_int_equal(access(folder, F_OK), -1); /* the folder contained nothing else */
}

int main(void) {
  const struct CMUnitTest tests[] = {
      test_on_device(each_rank_tells_what_it_did),
      test_on_device(a_second_trace_has_a_file_of_its_own),
      test_on_device(a_refusal_is_heard_by_all),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Datasets: this rank's rows of each global batch, straight into a training step; the place in the data. */
#include "models.h"

#include <unistd.h>

static char folder[64];

static const char* path_of(const char* name) {
  static char path[128];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return path;
}

static void write_tokens(const char* name, int64_t count, int64_t limit) {
  FILE* file = fopen(path_of(name), "wb");
  assert_non_null(file);
  for (int64_t i = 0; i < count; ++i) fputc((int)(i * 7 % limit), file);
  fclose(file);
}

static gw_data_source source_of(const char* path) {
  gw_data_source s;
  gw_data_source_init(&s, sizeof s);
  s.path = path;
  return s;
}

/* Two files of ids below 11, in rows of 4. */
static gw_status make(gw_dataset** out) {
  char a[128], b[128];
  snprintf(a, sizeof a, "%s/a.u8", folder);
  snprintf(b, sizeof b, "%s/b.u8", folder);
  gw_data_source sources[2] = {source_of(a), source_of(b)};
  sources[1].weight = 0.5;
  gw_dataset_options o;
  gw_dataset_options_init(&o, sizeof o);
  o.sources = sources;
  o.source_count = 2;
  o.sequence = 4;
  o.seed = 3;
  o.vocab_size = 11;
  return gw_dataset_create(&o, out);
}

static void defaults_are_the_documented_ones(void** state) {
  (void)state;
  gw_dataset_options o;
  gw_dataset_options_init(&o, sizeof o);
  assert_true(o.sequence == 2048 && o.seed == 0 && o.vocab_size == 0 && o.document_end == -1);
  assert_true(o.packing == GW_PACKING_STREAM && o.shuffle == 1 && o.read_ahead == 2);
  const gw_data_source s = source_of("x");
  assert_true(s.weight == 1 && s.format == NULL);
}

static void a_batch_has_its_tokens_labels_and_place(void** state) {
  (void)state;
  gw_dataset* dataset = NULL;
  int64_t rows = 0, taken = -1;
  assert_ok(make(&dataset));
  assert_ok(gw_dataset_rows_per_epoch(dataset, &rows));
  assert_int_equal(rows, 25 + 50);
  gw_data_batch b;
  gw_data_batch_init(&b, sizeof b);
  for (int64_t k = 0; k < 3; ++k) {
    assert_ok(gw_dataset_next(dataset, NULL, 6, &b));
    assert_true(b.first_row == 6 * k && b.last_row == 6 * k + 6 && b.data_seconds >= 0);
    assert_true(b.rank_first_row == b.first_row && b.rank_last_row == b.last_row);
    assert_true(b.tokens->dtype == GW_I64 && b.tokens->ndim == 2);
    assert_true(b.tokens->shape[0] == 6 && b.tokens->shape[1] == 4);
    assert_null(b.documents);
    const int64_t *tokens = b.tokens->data, *labels = b.labels->data;
    int64_t counted = 0;
    for (int i = 0; i < 24; ++i) {
      if (labels[i] != -100) ++counted;
      if (labels[i] != -100) assert_int_equal(labels[i], (tokens[i] + 7) % 11);
    }
    assert_int_equal(b.label_count, counted);
    assert_true(b.batch->inputs == b.tokens && b.batch->targets == b.labels);
    assert_true(b.batch->shift_labels == 0 && b.batch->weight == counted);
  }
  assert_ok(gw_dataset_rows_taken(dataset, &taken));
  assert_int_equal(taken, 18);
  assert_ok(gw_dataset_batches_taken(dataset, &taken));
  assert_int_equal(taken, 3);
  gw_dataset_release(dataset);
}

/* A loop may hold the views of one batch while it takes the next. */
static void views_are_valid_until_the_next_but_one_call(void** state) {
  (void)state;
  gw_dataset* dataset = NULL;
  gw_data_batch b;
  gw_data_batch_init(&b, sizeof b);
  assert_ok(make(&dataset));
  for (int k = 0; k < 20; ++k) {
    int64_t copy[12];
    assert_ok(gw_dataset_next(dataset, NULL, 3, &b));
    const gw_view* tokens = b.tokens;
    memcpy(copy, tokens->data, sizeof copy);
    assert_ok(gw_dataset_next(dataset, NULL, 5, &b));
    assert_memory_equal(copy, tokens->data, sizeof copy);
    assert_int_equal(tokens->shape[0], 3);
  }
  gw_dataset_release(dataset);
}

enum { kBatches = 3, kRows = 7 };

/* Trains on the same global batches on any number of ranks. user: losses [kBatches]. */
static void trains(rank* me) {
  gw_gangs* gangs = NULL;
  gw_module* model = NULL;
  gw_optimizer* opt = NULL;
  gw_dataset* dataset = NULL;
  gw_parallel_options p;
  gw_parallel_options_init(&p, sizeof p);
  p.master_dtype = GW_F64;
  p.seed = 3;
  const gw_decoder_options o = small_llama();
  EXPECT_OK(gw_gangs_create(me->gang, NULL, &gangs));
  EXPECT_OK(gw_decoder_create(&o, &model));
  EXPECT_OK(gw_parallelize(model, gangs, &p));
  EXPECT_OK(gw_adamw_create(model, NULL, &opt));
  EXPECT_OK(make(&dataset));
  gw_data_batch b;
  gw_data_batch_init(&b, sizeof b);
  gw_step_result r;
  gw_step_result_init(&r, sizeof r);
  double losses[kBatches];
  for (int k = 0; k < kBatches; ++k) {
    EXPECT_OK(gw_dataset_next(dataset, gangs, kRows, &b));
    const int64_t mine = b.rank_last_row - b.rank_first_row;
    EXPECT(mine >= kRows / me->size && mine <= kRows / me->size + 1 && b.tokens->shape[0] == mine);
    EXPECT_OK(gw_train_step(model, opt, b.batch, NULL, NULL, &r));
    losses[k] = r.loss;
  }
  double* wanted = me->user;
  for (int k = 0; k < kBatches && me->size == 1; ++k) wanted[k] = losses[k];
  for (int k = 0; k < kBatches; ++k) EXPECT(losses[k] - wanted[k] < 1e-12 && wanted[k] - losses[k] < 1e-12);
  gw_dataset_release(dataset);
  gw_optimizer_release(opt);
  gw_module_release(model);
  EXPECT_OK(gw_gangs_shutdown(gangs, -1));
  gw_gangs_release(gangs);
}

static void training_has_the_same_losses_on_any_number_of_ranks(void** state) {
  (void)state;
  double losses[kBatches] = {0};
  for (int32_t ranks = 1; ranks <= most_ranks(); ++ranks) run_ranks(ranks, trains, losses);
}

static void the_place_is_a_text_that_another_dataset_takes_over(void** state) {
  (void)state;
  gw_dataset *before = NULL, *after = NULL;
  gw_data_batch b, c;
  char place[1024];
  size_t length = 0;
  int64_t taken = 0;
  gw_data_batch_init(&b, sizeof b);
  gw_data_batch_init(&c, sizeof c);
  assert_ok(make(&before));
  assert_ok(make(&after));
  for (int k = 0; k < 4; ++k) assert_ok(gw_dataset_next(before, NULL, 5, &b));
  assert_ok(gw_dataset_position(before, NULL, 0, &length));
  assert_refused(gw_dataset_position(before, place, length, &length), "the text has");
  assert_ok(gw_dataset_position(before, place, sizeof place, &length));
  assert_int_equal(strlen(place), length);
  assert_ok(gw_dataset_restore(after, place, 0));
  assert_ok(gw_dataset_rows_taken(after, &taken));
  assert_int_equal(taken, 20);
  assert_ok(gw_dataset_batches_taken(after, &taken));
  assert_int_equal(taken, 4);
  assert_ok(gw_dataset_next(before, NULL, 8, &b));
  assert_ok(gw_dataset_next(after, NULL, 8, &c));
  assert_memory_equal(b.tokens->data, c.tokens->data, 8 * 4 * sizeof(int64_t));
  assert_refused(gw_dataset_restore(after, "rows", 0), "not that of gw_dataset_position");
  /* Another file of the same name. */
  gw_dataset* other = NULL;
  write_tokens("a.u8", 90, 11);
  assert_ok(make(&other));
  assert_refused_as(gw_dataset_restore(other, place, 0), GW_E_MISMATCH,
                    "sources[0].files[0].bytes was 100 and is 90");
  assert_ok(gw_dataset_restore(other, place, 1));
  write_tokens("a.u8", 100, 11);
  gw_dataset_release(other);
  gw_dataset_release(after);
  gw_dataset_release(before);
}

static void evaluation_begins_where_it_is_told(void** state) {
  (void)state;
  gw_dataset* dataset = NULL;
  gw_data_batch b;
  gw_data_batch_init(&b, sizeof b);
  assert_ok(make(&dataset));
  int64_t first[12], again[12];
  assert_ok(gw_dataset_next(dataset, NULL, 3, &b));
  memcpy(first, b.tokens->data, sizeof first);
  assert_ok(gw_dataset_set_rows_taken(dataset, 0));
  assert_ok(gw_dataset_next(dataset, NULL, 3, &b));
  memcpy(again, b.tokens->data, sizeof again);
  assert_memory_equal(first, again, sizeof first);
  gw_dataset* held = gw_dataset_retain(dataset);
  assert_ptr_equal(held, dataset);
  gw_dataset_release(dataset);
  assert_ok(gw_dataset_next(held, NULL, 3, &b));
  gw_dataset_release(held);
}

static void packed_documents_come_with_their_numbers(void** state) {
  (void)state;
  const char bytes[] = {1, 2, 0, 3, 0, 4, 5, 6, 7, 0};
  FILE* file = fopen(path_of("d.u8"), "wb");
  fwrite(bytes, 1, sizeof bytes, file);
  fclose(file);
  gw_data_source s = source_of(path_of("d.u8"));
  gw_dataset_options o;
  gw_dataset_options_init(&o, sizeof o);
  o.sources = &s;
  o.source_count = 1;
  o.sequence = 6;
  o.packing = GW_PACKING_DOCUMENTS;
  o.shuffle = 0;
  gw_dataset* dataset = NULL;
  assert_refused(gw_dataset_create(&o, &dataset), "nothing tells where the documents of");
  o.document_end = 0;
  assert_ok(gw_dataset_create(&o, &dataset));
  gw_data_batch b;
  gw_data_batch_init(&b, sizeof b);
  assert_ok(gw_dataset_next(dataset, NULL, 2, &b));
  const int64_t tokens[] = {1, 2, 0, 3, 0, 0, 4, 5, 6, 7, 0, 0};
  const int64_t labels[] = {2, 0, -100, 0, -100, -100, 5, 6, 7, 0, -100, -100};
  const int32_t documents[] = {0, 0, 0, 1, 1, -1, 0, 0, 0, 0, 0, -1};
  assert_memory_equal(b.tokens->data, tokens, sizeof tokens);
  assert_memory_equal(b.labels->data, labels, sizeof labels);
  assert_memory_equal(b.documents->data, documents, sizeof documents);
  assert_true(b.documents->dtype == GW_I32 && b.label_count == 7);
  gw_dataset_release(dataset);
}

static void bad_input_is_refused_in_one_line(void** state) {
  (void)state;
  gw_dataset* dataset = NULL;
  gw_data_batch b;
  gw_data_batch_init(&b, sizeof b);
  gw_data_source s = source_of(path_of("a.u8"));
  gw_dataset_options o;
  gw_dataset_options_init(&o, sizeof o);
  assert_refused(gw_dataset_create(&o, &dataset), "at least one source");
  o.source_count = 1;
  assert_refused(gw_dataset_create(&o, &dataset), "options.sources is null");
  o.sources = &s;
  o.packing = 7;
  assert_refused(gw_dataset_create(&o, &dataset), "options.packing is 7");
  o.packing = GW_PACKING_STREAM;
  o.sequence = 0;
  assert_refused(gw_dataset_create(&o, &dataset), "sequence is 0");
  o.sequence = 4;
  s.path = NULL;
  assert_refused(gw_dataset_create(&o, &dataset), "options.sources[0].path is null");
  s.path = path_of("none*");
  assert_refused_as(gw_dataset_create(&o, &dataset), GW_E_NOT_FOUND, "no file of tokens matches");
  s.path = path_of("none.u8");
  assert_refused_as(gw_dataset_create(&o, &dataset), GW_E_IO, "No such file or directory");
  s.path = path_of("a.u8");
  s.format = "llm.c";
  assert_refused_as(gw_dataset_create(&o, &dataset), GW_E_CORRUPT, "does not begin with a header of llm.c");
  s.format = NULL;
  o.vocab_size = 10;
  assert_ok(gw_dataset_create(&o, &dataset));
  assert_refused(gw_dataset_next(dataset, NULL, 0, &b), "global_batch is 0");
  assert_refused_as(gw_dataset_next(dataset, NULL, 25, &b), GW_E_CORRUPT,
                    "is 10, but the vocabulary has the ids 0 to 9");
  assert_refused(gw_dataset_set_rows_taken(dataset, -1), "rows is -1");
  gw_dataset_release(dataset);
}

static int begin(void** state) {
  (void)state;
  snprintf(folder, sizeof folder, "/tmp/gangway-dataset-XXXXXX");
  if (mkdtemp(folder) == NULL) return -1;
  write_tokens("a.u8", 100, 11);
  write_tokens("b.u8", 200, 11);
  return 0;
}
static int end(void** state) {
  (void)state;
  char command[128];
  snprintf(command, sizeof command, "rm -rf %s", folder);
  return system(command);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(defaults_are_the_documented_ones),
                                     cmocka_unit_test(a_batch_has_its_tokens_labels_and_place),
                                     cmocka_unit_test(views_are_valid_until_the_next_but_one_call),
                                     cmocka_unit_test(training_has_the_same_losses_on_any_number_of_ranks),
                                     cmocka_unit_test(the_place_is_a_text_that_another_dataset_takes_over),
                                     cmocka_unit_test(evaluation_begins_where_it_is_told),
                                     cmocka_unit_test(packed_documents_come_with_their_numbers),
                                     cmocka_unit_test(bad_input_is_refused_in_one_line)};
  return cmocka_run_group_tests_name("capi_dataset", tests, begin, end);
}

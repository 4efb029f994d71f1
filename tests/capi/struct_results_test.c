/* Every sized struct that a call fills, with struct_size 0, too small, exact, and with 8 more bytes that are
 * zero or not. The calls fill as much of the struct as the caller has room for. */
#include "models.h"

static struct {
  gw_gang* gang;
  gw_gangs* gangs;
  gw_module* model;
  gw_parameter* parameter;
  gw_partition* partition;
  gw_pipeline* pipeline;
  gw_dataset* dataset;
  gw_metrics* metrics;
  gw_error* error;
  small_batch batch;
} m;

static gw_status traffic(void* x) { return gw_gang_get_traffic(m.gang, x); }
static gw_status parameter_info(void* x) { return gw_parameter_describe(m.parameter, x); }
static gw_status partition_info(void* x) { return gw_partition_describe(m.partition, x); }
static gw_status pipeline_info(void* x) { return gw_pipeline_describe(m.pipeline, x); }
/* A forward and a backward in turn. The action at the end of the pass is skipped. */
static gw_status pipeline_action(void* x) {
  static int done = 0;
  gw_pipeline_action over;
  gw_pipeline_action_init(&over, sizeof over);
  if (done == 2) {
    assert_ok(gw_pipeline_next(m.pipeline, NULL, &over));
    done = 0;
  }
  const gw_status status = gw_pipeline_next(m.pipeline, NULL, x);
  if (status != GW_OK) return status;
  ++done;
  return gw_pipeline_done(m.pipeline, NULL, 0, NULL);
}
static gw_status memory_use(void* x) { return gw_module_memory(m.model, x); }
static gw_status step_result(void* x) { return gw_eval_step(m.model, &m.batch.batch, NULL, NULL, x); }
static gw_status verify_result(void* x) {
  return gw_verify(m.gangs, build_small_llama, NULL, &m.batch.batch, NULL, x);
}
static gw_status data_batch(void* x) { return gw_dataset_next(m.dataset, NULL, 1, x); }
static gw_status metrics_row(void* x) {
  int64_t rows = 0;
  return gw_metrics_latest(m.metrics, x, &rows);
}
static gw_status memory_info(void* x) { return gw_host_memory(x); }
static gw_status error_info(void* x) { return gw_error_describe(m.error, x); }

typedef void (*init_fn)(void*, size_t);
#define RESULT(type, call, field) \
  { #type, sizeof(gw_##type), (init_fn)(void (*)(void))gw_##type##_init, call, offsetof(gw_##type, field) }
static const struct {
  const char* name;
  size_t size;
  init_fn init;
  gw_status (*call)(void*);
  size_t offset; /* of a field that the call sets to another value than zero */
} outputs[] = {RESULT(gang_traffic, traffic, calls),           RESULT(parameter_info, parameter_info, name),
               RESULT(partition_info, partition_info, active), RESULT(pipeline_info, pipeline_info, stages),
               RESULT(pipeline_action, pipeline_action, kind), RESULT(memory_use, memory_use, master),
               RESULT(step_result, step_result, loss),         RESULT(verify_result, verify_result, loss),
               RESULT(data_batch, data_batch, batch),          RESULT(metrics_row, metrics_row, loss),
               RESULT(memory_info, memory_info, total),        RESULT(error_info, error_info, code)};

static void results_of_every_size(void** state) {
  (void)state;
  for (size_t i = 0; i < sizeof outputs / sizeof *outputs; ++i) {
    const size_t exact = outputs[i].size;
    print_message("%s\n", outputs[i].name);
    for (size_t size = 16; size <= exact + 8; size += 8) {
      char *x = malloc(size), zero[4] = {0};
      outputs[i].init(x, size);
      assert_ok(outputs[i].call(x));
      assert_int_equal(*(size_t*)x, size);
      if (size >= outputs[i].offset + 8) assert_memory_not_equal(x + outputs[i].offset, zero, 4);
      for (size_t at = exact; at < size; ++at) assert_int_equal(x[at], 0);
      free(x);
    }
    /* With 8 more bytes that are not zero: the call only writes a result, and leaves what the library does
     * not know unchanged. */
    char* x = malloc(exact + 8);
    outputs[i].init(x, exact + 8);
    memset(x + exact, 0x5a, 8);
    assert_ok(outputs[i].call(x));
    assert_memory_not_equal(x + outputs[i].offset, "\0\0\0", 4);
    for (size_t at = exact; at < exact + 8; ++at) assert_int_equal(x[at], 0x5a);
    free(x);
    x = malloc(exact);
    outputs[i].init(x, exact);
    for (size_t bad = 0; bad < 16; ++bad) {
      *(size_t*)x = bad;
      assert_refused(outputs[i].call(x), "struct_size is");
    }
    free(x);
  }
  gw_error_info small;
  small.struct_size = 8;
  assert_int_equal(gw_last_error(&small), GW_E_INVALID_ARGUMENT);
}

static const char* const token_file = "/tmp/gangway-struct-results-test.u8";

static int begin(void** state) {
  (void)state;
  const gw_decoder_options o = small_llama();
  fill_batch(&m.batch, 1, 0);
  gw_pipeline_options pipeline;
  gw_pipeline_options_init(&pipeline, sizeof pipeline);
  pipeline.microbatches = 1;
  gw_data_source source;
  gw_data_source_init(&source, sizeof source);
  source.path = token_file;
  gw_dataset_options data;
  gw_dataset_options_init(&data, sizeof data);
  data.sources = &source;
  data.source_count = 1;
  FILE* tokens = fopen(token_file, "wb");
  if (tokens == NULL || fputs("tokens", tokens) < 0 || fclose(tokens) != 0) return -1;
  gw_gang_barrier(NULL, NULL);
  m.error = gw_error_take();
  const int good =
      gw_gang_create(NULL, &m.gang) == GW_OK && gw_gangs_create(m.gang, NULL, &m.gangs) == GW_OK &&
      gw_decoder_create(&o, &m.model) == GW_OK && gw_parallelize(m.model, m.gangs, NULL) == GW_OK &&
      gw_module_parameter(m.model, 0, &m.parameter) == GW_OK && gw_gang_barrier(m.gang, NULL) == GW_OK &&
      gw_partition_create(m.gang, &m.partition) == GW_OK &&
      gw_pipeline_create(m.gang, &pipeline, &m.pipeline) == GW_OK &&
      gw_dataset_create(&data, &m.dataset) == GW_OK && gw_metrics_create(m.model, NULL, &m.metrics) == GW_OK;
  gw_step_result result;
  gw_step_result_init(&result, sizeof result);
  result.loss = 0.1;
  return good && gw_metrics_log(m.metrics, &result, NULL) == GW_OK ? 0 : -1;
}
static int end(void** state) {
  (void)state;
  gw_error_release(m.error);
  gw_metrics_release(m.metrics);
  gw_dataset_release(m.dataset);
  gw_pipeline_release(m.pipeline);
  gw_partition_release(m.partition);
  gw_parameter_release(m.parameter);
  gw_module_release(m.model);
  gw_gangs_release(m.gangs);
  gw_gang_release(m.gang);
  return remove(token_file);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(results_of_every_size)};
  return cmocka_run_group_tests_name("capi_struct_results", tests, begin, end);
}

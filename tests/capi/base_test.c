#include "testing.h"

#include <math.h>
#include <sys/wait.h>
#include <unistd.h>

static void names_of_statuses_and_dtypes(void** state) {
  (void)state;
  assert_string_equal(gw_status_name(GW_OK), "OK");
  assert_string_equal(gw_status_name(GW_E_INVALID_ARGUMENT), "INVALID_ARGUMENT");
  assert_string_equal(gw_status_name(GW_E_PEER_LOST), "PEER_LOST");
  assert_string_equal(gw_status_name(GW_E_INTERNAL), "INTERNAL");
  assert_string_equal(gw_status_name(-1), "UNKNOWN");
  assert_string_equal(gw_status_name(GW_E_BUSY + 1), "UNKNOWN");
  static const struct {
    gw_dtype dtype;
    const char* name;
    size_t bytes;
  } table[] = {{GW_I8, "i8", 1},           {GW_I16, "i16", 2},        {GW_I32, "i32", 4},
               {GW_I64, "i64", 8},         {GW_U8, "u8", 1},          {GW_U16, "u16", 2},
               {GW_U32, "u32", 4},         {GW_U64, "u64", 8},        {GW_F16, "f16", 2},
               {GW_F32, "f32", 4},         {GW_F64, "f64", 8},        {GW_BF16, "bf16", 2},
               {GW_C64, "c64", 8},         {GW_C128, "c128", 16},     {GW_BOOL, "bool", 1},
               {GW_F8_E4M3, "f8_e4m3", 1}, {GW_F8_E5M2, "f8_e5m2", 1}};
  for (size_t i = 0; i < sizeof table / sizeof *table; ++i) {
    assert_string_equal(gw_dtype_name(table[i].dtype), table[i].name);
    assert_int_equal(gw_dtype_bytes(table[i].dtype), table[i].bytes);
  }
  assert_string_equal(gw_dtype_name(GW_DTYPE_INVALID), "unknown");
  assert_int_equal(gw_dtype_bytes(GW_DTYPE_INVALID), 0);
  assert_int_equal(gw_dtype_bytes(GW_DTYPE_NONE), 0);
  assert_int_equal(gw_dtype_bytes(0x22002), 0); /* has two lanes */
}

static void versions(void** state) {
  (void)state;
  int32_t major = -1, minor = -1, patch = -1, lowest = -1, highest = -1;
  gw_version(&major, &minor, &patch);
  assert_int_equal(major, GANGWAY_MAJOR);
  assert_true(minor >= 0 && patch >= 0 && major + minor + patch > 0);
  gw_version(NULL, NULL, NULL);
  gw_abi_version(&major, &minor);
  assert_int_equal(major, GANGWAY_MAJOR);
  gw_abi_version(NULL, NULL);
  gw_abi_range(&lowest, &highest);
  assert_int_equal(lowest, 0);
  assert_int_equal(highest, minor);
  gw_abi_range(NULL, NULL);
}

static void function_table(void** state) {
  (void)state;
  const gw_api* api = gw_get_api(0);
  assert_non_null(api);
  assert_int_equal(api->struct_size, sizeof *api);
  assert_int_equal(api->abi_major, GANGWAY_MAJOR);
  assert_true(api->dtype_bytes == gw_dtype_bytes && api->train_step == gw_train_step);
  void* const* entries = (void* const*)((const char*)api + offsetof(gw_api, error_info_init));
  const size_t count = (sizeof *api - offsetof(gw_api, error_info_init)) / sizeof(void*);
  for (size_t i = 0; i < count; ++i) assert_non_null(entries[i]);
  assert_null(gw_get_api(-1));
  assert_null(gw_get_api(1000));
}

static void error_of_the_last_call(void** state) {
  (void)state;
  gw_error_info info = last_error();
  size_t length = 0;
  assert_ok(gw_config_text(NULL, 0, &length));
  assert_null(gw_error_take()); /* there is no error */
  assert_int_equal(info.struct_size, sizeof info);
  assert_refused(gw_gang_barrier(NULL, NULL), "gang is null");
  info = last_error();
  assert_int_equal(info.code, GW_E_INVALID_ARGUMENT);
  assert_int_equal(info.rank, -1);
  assert_int_equal(info.peer, -1);
  assert_int_equal(info.system_error, 0);
  assert_string_equal(info.gang, "");
  /* Calls of release, name and last_error do not change it. */
  gw_gang_release(NULL);
  assert_string_equal(gw_status_name(info.code), "INVALID_ARGUMENT");
  assert_int_equal(last_error().code, GW_E_INVALID_ARGUMENT);
  char line[256];
  snprintf(line, sizeof line, "INVALID_ARGUMENT: %s", last_error().message);
  assert_string_equal(gw_last_error_text(), line);
  assert_string_equal(gw_last_error_text(), line); /* it does not clear the error either */
  /* An error object outlives the next call, which clears the thread's error. */
  gw_error* error = gw_error_take();
  assert_non_null(error);
  assert_ok(gw_config_text(NULL, 0, &length));
  assert_int_equal(last_error().code, GW_OK);
  assert_string_equal(last_error().message, "");
  assert_string_equal(gw_last_error_text(), "");
  gw_error_info_init(&info, sizeof info);
  assert_ok(gw_error_describe(error, &info));
  assert_int_equal(info.code, GW_E_INVALID_ARGUMENT);
  assert_non_null(strstr(info.message, "gang is null"));
  assert_ptr_equal(gw_error_retain(error), error);
  assert_null(gw_error_retain(NULL));
  gw_error_release(error);
  gw_error_release(error);
  gw_error_release(NULL);
  assert_refused(gw_error_describe(NULL, &info), "error is null");
  assert_int_equal(gw_last_error(NULL), GW_E_INVALID_ARGUMENT);
  gw_error_info_init(NULL, sizeof info);
}

static void error_names_gang_rank_and_call(void** state) {
  (void)state;
  gw_gang_options options;
  gw_gang_options_init(&options, sizeof options);
  options.name = "solo";
  gw_gang* gang = NULL;
  assert_ok(gw_gang_create(&options, &gang));
  float x = 1;
  assert_refused(gw_gang_broadcast(gang, &x, &x, 1, GW_F32, 7, NULL), "rank 7 is outside [0, ");
  const gw_error_info info = last_error();
  assert_string_equal(info.gang, "solo");
  assert_int_equal(info.rank, 0);
  assert_int_equal(info.peer, 7);
  assert_string_equal(info.op, "broadcast");
  gw_gang_release(gang);
}

static void* fails_elsewhere(void* unused) {
  (void)unused;
  gw_gang_barrier(NULL, NULL);
  return NULL;
}

static void errors_belong_to_their_thread(void** state) {
  (void)state;
  size_t length = 0;
  assert_ok(gw_config_text(NULL, 0, &length));
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, fails_elsewhere, NULL), 0);
  pthread_join(thread, NULL);
  assert_int_equal(last_error().code, GW_OK);
}

static int32_t stop(void* user) { return ++((int*)user)[1] > 2; }
static int32_t go_on(void* user) {
  ++((int*)user)[1];
  return 0;
}

static void interrupted_recv(rank* me) {
  if (me->index != 0) return; /* rank 0 waits for a message that never comes */
  int counts[2] = {0, 0};     /* frees, calls */
  EXPECT_OK(gw_interrupt_set(stop, counts, count_free));
  float x = 0;
  EXPECT_STATUS(gw_gang_recv(me->gang, &x, 1, GW_F32, 1, NULL), GW_E_CALLER, "interrupt hook");
  EXPECT(counts[1] == 3 && counts[0] == 0);
  EXPECT_OK(gw_interrupt_set(NULL, NULL, NULL));
  EXPECT(counts[0] == 1);
  /* The caller owns the call's memory again: the gang is broken, and every later call gets the same error. */
  EXPECT_STATUS(gw_gang_barrier(me->gang, NULL), GW_E_CALLER, "interrupt hook");
}

static void interrupt_hook_ends_a_wait(void** state) {
  (void)state;
  run_ranks(2, interrupted_recv, NULL);
}

static void interrupt_hook_is_freed_once(void** state) {
  (void)state;
  int first[2] = {0, 0}, second[2] = {0, 0}, none[2] = {0, 0};
  assert_ok(gw_interrupt_set(go_on, first, count_free));
  assert_ok(gw_interrupt_set(go_on, second, count_free)); /* replaces the first hook */
  assert_int_equal(first[0], 1);
  assert_ok(gw_interrupt_set(NULL, none, count_free)); /* no hook, so its user is freed at once */
  assert_int_equal(second[0], 1);
  assert_int_equal(none[0], 1);
  assert_ok(gw_interrupt_set(NULL, NULL, NULL));
  assert_int_equal(none[0], 1);
}

static void a_text_call_returns_the_size_it_needs(void** state) {
  (void)state;
  size_t length = 0;
  assert_ok(gw_config_text(NULL, 0, &length));
  assert_true(length > 0);
  char* text = malloc(length + 1);
  assert_ok(gw_config_text(text, length + 1, &length));
  assert_int_equal(strlen(text), length);
  assert_non_null(strstr(text, "GANGWAY_TIMEOUT_MS"));
  assert_ok(gw_config_text(text, length + 1, NULL));
  assert_refused(gw_config_text(text, length, &length), "buffer");
  assert_refused(gw_config_text(NULL, 0, NULL), "null");
  free(text);
  uint64_t next = 0;
  assert_ok(gw_log_read(0, NULL, 0, &length, &next));
  text = malloc(length + 1);
  assert_ok(gw_log_read(0, text, length + 1, &length, &next));
  assert_int_equal(strlen(text), length);
  assert_refused(gw_log_read(0, NULL, 0, NULL, NULL), "null");
  free(text);
}

static void a_broadcast_gives_the_roots_bytes(void** state) {
  (void)state;
  gw_gang* gang = NULL;
  assert_ok(gw_gang_create(NULL, &gang));
  gw_bytes* bytes = NULL;
  assert_ok(gw_gang_broadcast_bytes(gang, "hello", 5, 0, &bytes));
  assert_int_equal(gw_bytes_size(bytes), 5);
  assert_memory_equal(gw_bytes_data(bytes), "hello", 5);
  assert_ptr_equal(gw_bytes_retain(bytes), bytes);
  assert_null(gw_bytes_retain(NULL));
  gw_bytes_release(bytes);
  assert_memory_equal(gw_bytes_data(bytes), "hello", 5);
  gw_bytes_release(bytes);
  gw_bytes_release(NULL);
  assert_null(gw_bytes_data(NULL));
  assert_int_equal(gw_bytes_size(NULL), 0);
  gw_gang_release(gang);
}

/* Runs in the child of a fork. Returns 0 if every call returns FORKED and releases do nothing. */
static int child_of_fork(gw_gang* gang) {
  float x = 0;
  gw_gang* other = NULL;
  size_t length = 0;
  int failed = 0;
  failed |= gw_gang_barrier(gang, NULL) != GW_E_FORKED;
  failed |= last_error().code != GW_E_FORKED || strstr(last_error().message, "fork") == NULL;
  failed |= gw_gang_all_reduce(gang, &x, &x, 1, GW_F32, GW_SUM, NULL) != GW_E_FORKED;
  failed |= gw_gang_create(NULL, &other) != GW_E_FORKED;
  failed |= gw_config_text(NULL, 0, &length) != GW_E_FORKED;
  failed |= gw_gang_abort(gang, "x") != GW_E_FORKED;
  int freed = 0;
  failed |= gw_interrupt_set(NULL, &freed, count_free) != GW_E_FORKED || freed != 1;
  gw_gang_release(gang);
  return failed;
}

static void forked_child_is_refused(void** state) {
  (void)state;
  gw_gang* gangs[2];
  assert_ok(gw_gang_create_threads(2, NULL, gangs));
  const pid_t child = fork();
  if (child == 0) _exit(child_of_fork(gangs[0]));
  int status = -1;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
  /* The parent goes on. */
  void* memory = NULL;
  assert_ok(gw_gang_alloc(gangs[0], 64, &memory));
  gw_gang_free(gangs[0], memory);
  for (int i = 0; i < 2; ++i) gw_gang_release(gangs[i]);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(names_of_statuses_and_dtypes),
                                     cmocka_unit_test(versions),
                                     cmocka_unit_test(function_table),
                                     cmocka_unit_test(error_of_the_last_call),
                                     cmocka_unit_test(error_names_gang_rank_and_call),
                                     cmocka_unit_test(errors_belong_to_their_thread),
                                     cmocka_unit_test(interrupt_hook_ends_a_wait),
                                     cmocka_unit_test(interrupt_hook_is_freed_once),
                                     cmocka_unit_test(a_text_call_returns_the_size_it_needs),
                                     cmocka_unit_test(a_broadcast_gives_the_roots_bytes),
                                     cmocka_unit_test(forked_child_is_refused)};
  return cmocka_run_group_tests_name("capi_base", tests, NULL, NULL);
}

/* Gangs: failures and ends, memory, and the record of what a gang has done. */
#include "device_memory.h"

/* Memory of the gang's device; null if none is left. */
static void* memory_of(gw_gang* gang, size_t bytes) {
  void* data = NULL;
  return gw_gang_alloc(gang, bytes, &data) == GW_OK ? data : NULL;
}

static void work_ends(rank* me) {
  float* const x = memory_of(me->gang, sizeof *x);
  int32_t done = -1;
  gw_work* work = NULL;
  EXPECT(x != NULL);
  EXPECT_OK(gw_gang_barrier(me->gang, NULL)); /* the first message of GPUs would wait for the peer */
  if (me->index == 0) {
    EXPECT_OK(gw_gang_recv_async(me->gang, x, 1, GW_F32, 1, NULL, &work));
    EXPECT_STATUS(gw_work_wait(work, 1), GW_E_NOT_READY, NULL);
    EXPECT(gw_gang_abort(me->gang, "enough") == GW_OK); /* leaves the last error as it is */
    EXPECT_STATUS(gw_work_wait(work, -1), GW_E_ABORTED, "enough");
    EXPECT_STATUS(gw_work_poll(work, &done), GW_E_ABORTED, "enough");
    EXPECT_STATUS(gw_work_error(work), GW_E_ABORTED, "enough");
    gw_work_release(work);
  } else {
    EXPECT_STATUS(gw_gang_recv(me->gang, x, 1, GW_F32, 0, NULL), GW_E_ABORTED, "enough");
    EXPECT_STATUS(gw_gang_async_error(me->gang), GW_E_ABORTED, "enough");
    EXPECT_STATUS(gw_gang_barrier(me->gang, NULL), GW_E_ABORTED, "enough"); /* the first error stays */
  }
  gw_gang_free(me->gang, x);
}

static void abort_wakes_waiters_on_every_rank(void** state) {
  (void)state;
  run_ranks(2, work_ends, NULL);
  assert_refused(gw_gang_abort(NULL, "x"), "gang is null");
  assert_refused(gw_gang_async_error(NULL), "gang is null");
}

static void mismatched(rank* me) {
  float *const x = memory_of(me->gang, 32), *const y = memory_of(me->gang, 32);
  EXPECT(x != NULL && y != NULL);
  const gw_status status = me->index == 0 ? gw_gang_all_reduce(me->gang, x, y, 3, GW_F32, GW_SUM, NULL)
                                          : gw_gang_all_gather(me->gang, x, y, 2, GW_F32, NULL);
  EXPECT(status == GW_E_MISMATCH);
  const char* text = last_error().message;
  EXPECT(strstr(text, "all_reduce") != NULL && strstr(text, "all_gather") != NULL);
  EXPECT(strstr(text, "3 f32") != NULL && strstr(text, "2 f32") != NULL);
  gw_gang_free(me->gang, x);
  gw_gang_free(me->gang, y);
}

static void different_calls_are_a_mismatch_on_every_rank(void** state) {
  (void)state;
  run_ranks(2, mismatched, NULL);
}

static void shrinks(rank* me) {
  gw_gang* gang = NULL;
  const int32_t survivors[2] = {0, 2}, outside[1] = {9};
  if (me->index == 1) {
    EXPECT_OK(gw_gang_abort(me->gang, "rank 1 gives up"));
    return;
  }
  EXPECT_STATUS(gw_gang_barrier(me->gang, NULL), GW_E_ABORTED, "gives up");
  EXPECT_REFUSED(gw_gang_shrink(me->gang, outside, 1, &gang), "rank 9 is outside [0, ");
  EXPECT_REFUSED(gw_gang_shrink(me->gang, NULL, 2, &gang), "survivors is null");
  EXPECT_OK(gw_gang_shrink(me->gang, survivors, 2, &gang));
  EXPECT(gw_gang_size(gang) == 2 && gw_gang_rank(gang) == me->index / 2);
  double sum = 0;
  EXPECT_OK(gw_gang_all_sum(gang, 1, &sum));
  EXPECT(sum == 2);
  float* const x = memory_of(gang, sizeof *x);
  EXPECT(x != NULL);
  /* by the engine that moves a device's memory */
  EXPECT_OK(gw_gang_all_reduce(gang, x, x, 1, GW_F32, GW_SUM, NULL));
  gw_gang_free(gang, x);
  gw_gang_release(gang);
}

static void survivors_shrink_to_a_new_gang(void** state) {
  (void)state;
  run_ranks(3, shrinks, NULL);
  gw_gang* gang = NULL;
  const int32_t first = 0;
  assert_refused(gw_gang_shrink(NULL, &first, 1, &gang), "gang is null");
  gw_gang* own = alone();
  assert_refused(gw_gang_shrink(own, &first, 1, NULL), "out_gang is null");
  gw_gang_release(own);
}

static void times_out(rank* me) {
  if (me->index == 1) return;
  EXPECT_STATUS(gw_gang_shutdown(me->gang, 50), GW_E_TIMEOUT, NULL);
}

static void shutdown_has_its_own_time_limit(void** state) {
  (void)state;
  run_ranks(2, times_out, NULL);
  assert_refused(gw_gang_shutdown(NULL, 0), "gang is null");
}

static void memory(rank* me) {
  void *data = NULL, *again = NULL, *shared = NULL;
  EXPECT_OK(gw_gang_alloc(me->gang, 100, &data));
  EXPECT(((uintptr_t)data & 63) == 0);
  EXPECT_OK(gw_gang_alloc(me->gang, 0, &again));
  EXPECT(again != NULL && again != data);
  write_bytes(me->gang, data, (char[100]){1}, 100);
  gw_gang_free(me->gang, data);
  gw_gang_free(NULL, again); /* found by its address alone */
  gw_gang_free(me->gang, NULL);
  const gw_status status = gw_gang_alloc_shared(me->gang, 8 * (size_t)me->size, &shared);
  EXPECT_STATUS(status, on_gpus(test_device()) ? GW_E_NOT_SUPPORTED : GW_OK, NULL);
  if (status == GW_OK) {
    ((int64_t*)shared)[me->index] = me->index + 1;
    EXPECT_OK(gw_gang_barrier(me->gang, NULL));
    for (int32_t i = 0; i < me->size; ++i) EXPECT(((int64_t*)shared)[i] == i + 1);
    EXPECT_OK(gw_gang_barrier(me->gang, NULL));
  }
  gw_gang_free(me->gang, shared);
  EXPECT_REFUSED(gw_gang_alloc(me->gang, 8, NULL), "out_data is null");
  EXPECT_REFUSED(gw_gang_alloc_shared(me->gang, 8, NULL), "out_data is null");
  EXPECT_STATUS(gw_gang_alloc(me->gang, (size_t)1 << 50, &data), GW_E_OUT_OF_MEMORY, "1125899906842624");
  EXPECT(data == NULL);
}

/* A tensor of the gang's memory tells its device, and outlives the gang. */
static void tensor_of_memory(rank* me) {
  const int64_t shape[2] = {2, 3}, none[1] = {0}, below[1] = {-1}, huge[1] = {INT64_C(1) << 50};
  gw_tensor *tensor = NULL, *empty = NULL;
  gw_view view;
  float got[6];
  EXPECT_OK(gw_gang_alloc_tensor(me->gang, shape, 2, GW_F32, &tensor));
  EXPECT_OK(gw_tensor_view(tensor, &view));
  EXPECT(view.ndim == 2 && view.shape[0] == 2 && view.shape[1] == 3 && view.strides[0] == 3 &&
         view.dtype == GW_F32);
  const gw_view place = place_of(me->gang, view.data);
  EXPECT(view.device_type == place.device_type && view.device_id == place.device_id);
  const float values[6] = {1, 2, 3, 4, 5, 6};
  give(&view, values, NULL);
  EXPECT_OK(gw_gang_all_reduce(me->gang, view.data, view.data, 6, GW_F32, GW_SUM, NULL));
  EXPECT_OK(gw_tensor_order(tensor, NULL));
  take(got, &view, NULL);
  for (int i = 0; i < 6; ++i) EXPECT(got[i] == values[i] * (float)me->size);
  EXPECT_OK(gw_gang_alloc_tensor(me->gang, none, 1, GW_I64, &empty));
  gw_tensor_release(empty);
  EXPECT_OK(gw_gang_alloc_tensor(me->gang, NULL, 0, GW_F64, &empty));
  gw_tensor_release(empty);
  empty = NULL;
  EXPECT_REFUSED(gw_gang_alloc_tensor(me->gang, shape, 9, GW_F32, &empty), "ndim is 9, not 0 to 8");
  EXPECT_REFUSED(gw_gang_alloc_tensor(me->gang, NULL, 1, GW_F32, &empty), "shape is null");
  EXPECT_REFUSED(gw_gang_alloc_tensor(me->gang, below, 1, GW_F32, &empty), "dim 0 of a tensor is -1");
  EXPECT_REFUSED(gw_gang_alloc_tensor(me->gang, shape, 2, GW_DTYPE_NONE, &empty), "dtype");
  EXPECT_REFUSED(gw_gang_alloc_tensor(me->gang, shape, 2, GW_F32, NULL), "out_tensor is null");
  EXPECT_STATUS(gw_gang_alloc_tensor(me->gang, huge, 1, GW_U8, &empty), GW_E_OUT_OF_MEMORY,
                "1125899906842624");
  EXPECT(empty == NULL);
  gw_tensor_release(tensor);
}

static void a_tensor_of_the_gangs_memory(void** state) {
  (void)state;
  const int64_t shape[1] = {3};
  const float values[3] = {1, 2, 3};
  float got[3];
  gw_tensor* tensor = NULL;
  gw_view view;
  for (int32_t n = 1; n <= 2; ++n) run_ranks(n, tensor_of_memory, NULL);
  assert_refused(gw_gang_alloc_tensor(NULL, NULL, 0, GW_F32, &tensor), "gang is null");
  gw_gang* gangs[2];
  two_gangs(gangs);
  assert_ok(gw_gang_alloc_tensor(gangs[1], shape, 1, GW_F32, &tensor));
  gw_gang_release(gangs[1]);
  /* a tensor does not keep a rank of its gang alive */
  assert_int_equal(gw_gang_barrier(gangs[0], NULL), GW_E_PEER_LOST);
  gw_gang_release(gangs[0]);
  assert_ok(gw_tensor_view(tensor, &view));
  give(&view, values, NULL);
  assert_ok(gw_tensor_order(tensor, NULL));
  take(got, &view, NULL);
  assert_true(got[2] == 3);
  gw_tensor_release(tensor);
}

static void memory_of_the_gang(void** state) {
  (void)state;
  void* data = NULL;
  for (int32_t n = 1; n <= 3; ++n) run_ranks(n, memory, NULL);
  assert_refused(gw_gang_alloc(NULL, 8, &data), "gang is null");
  assert_refused(gw_gang_alloc_shared(NULL, 8, &data), "gang is null");
  /* The memory outlives its gang. */
  gw_gang* gangs[2];
  two_gangs(gangs);
  assert_ok(gw_gang_alloc(gangs[1], 64, &data));
  const gw_view place = place_of(gangs[1], data);
  for (int i = 0; i < 2; ++i) gw_gang_release(gangs[i]);
  assert_true(copy_values(data, (char[64]){7}, 64, NULL, &place));
  gw_gang_free(NULL, data);
}

/* The lines of the log from number `first` on. *next is the number after the last of them. */
static char* log_from(uint64_t first, uint64_t* next) {
  size_t length = 0;
  assert_ok(gw_log_read(first, NULL, 0, &length, NULL));
  char* const text = malloc(length + 1);
  assert_ok(gw_log_read(first, text, length + 1, &length, next));
  return text;
}

static void freeing_leaves_the_last_error_alone(void** state) {
  (void)state;
  gw_gang* gang = alone();
  void* data = NULL;
  uint64_t before = 0;
  char wanted[100];
  assert_ok(gw_gang_alloc(gang, 64, &data));
  free(log_from(0, &before));
  assert_refused(gw_gang_alloc(gang, 8, NULL), "out_data is null");
  gw_gang_free(gang, data);
  gw_gang_free(gang, data); /* it is no longer an address of the gang */
  gw_gang_free(NULL, NULL);
  assert_non_null(strstr(last_error().message, "out_data is null"));
  char* const lines = log_from(before, NULL);
  snprintf(wanted, sizeof wanted, "warning gw_gang_free: %p is not memory of gw_gang_alloc\n", data);
  assert_non_null(strstr(lines, wanted));
  free(lines);
  gw_gang_release(gang);
}

static void looks_back(rank* me) {
  gw_gang_traffic before, after;
  gw_gang_traffic_init(&before, sizeof before);
  gw_gang_traffic_init(&after, sizeof after);
  float *const x = memory_of(me->gang, 64), *const y = memory_of(me->gang, 64);
  EXPECT(x != NULL && y != NULL);
  EXPECT_OK(gw_gang_get_traffic(me->gang, &before));
  EXPECT_OK(gw_gang_all_reduce(me->gang, x, y, 16, GW_F32, GW_SUM, NULL));
  EXPECT_OK(gw_gang_get_traffic(me->gang, &after));
  EXPECT(after.calls == before.calls + 1);
  size_t length = 0;
  EXPECT_OK(gw_gang_flight_record(me->gang, NULL, 0, &length));
  EXPECT(length > 0);
  char* text = malloc(length + 1);
  const gw_status status = gw_gang_flight_record(me->gang, text, length + 1, NULL);
  const int named = status == GW_OK && strstr(text, "all_reduce") != NULL && strstr(text, "64 bytes") != NULL;
  free(text);
  EXPECT(named);
  gw_gang_free(me->gang, x);
  gw_gang_free(me->gang, y);
  EXPECT_REFUSED(gw_gang_get_traffic(me->gang, NULL), "traffic is null");
  EXPECT_REFUSED(gw_gang_flight_record(me->gang, NULL, 0, NULL), "null");
}

static void traffic_and_flight_record(void** state) {
  (void)state;
  run_ranks(2, looks_back, NULL);
  gw_gang_traffic traffic;
  gw_gang_traffic_init(&traffic, sizeof traffic);
  gw_gang_traffic_init(NULL, 0);
  size_t length;
  assert_refused(gw_gang_get_traffic(NULL, &traffic), "gang is null");
  assert_refused(gw_gang_flight_record(NULL, NULL, 0, &length), "gang is null");
  void* handle = &traffic;
  gw_gang* gang = alone();
  assert_refused_as(gw_gang_native_handle(gang, &handle), GW_E_NOT_SUPPORTED, "self");
  assert_null(handle);
  assert_refused(gw_gang_native_handle(gang, NULL), "out_handle is null");
  assert_refused(gw_gang_native_handle(NULL, &handle), "gang is null");
  gw_gang_release(gang);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(abort_wakes_waiters_on_every_rank),
                                     cmocka_unit_test(different_calls_are_a_mismatch_on_every_rank),
                                     cmocka_unit_test(survivors_shrink_to_a_new_gang),
                                     cmocka_unit_test(shutdown_has_its_own_time_limit),
                                     cmocka_unit_test(memory_of_the_gang),
                                     cmocka_unit_test(a_tensor_of_the_gangs_memory),
                                     cmocka_unit_test(freeing_leaves_the_last_error_alone),
                                     cmocka_unit_test(traffic_and_flight_record)};
  return cmocka_run_group_tests_name("capi_gang", tests, NULL, NULL);
}

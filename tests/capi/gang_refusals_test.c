/* Collectives with refused arguments. */
#include "device_memory.h"

/* Every refusal of a collective's arguments has its code, and a text with the number. Refusals are local, so
 * peers need not come. */
static void bad_collectives_are_refused(void** state) {
  (void)state;
  gw_gang* gangs[2];
  void* memory = NULL;
  two_gangs(gangs);
  gw_gang* g = gangs[0];
  assert_ok(gw_gang_alloc(g, 256, &memory));
  float *const x = memory, *const y = x + 16;
  int32_t* const i = memory;
  uint8_t* const b = memory;
  gw_bytes* bytes = NULL;
  size_t sizes[2];
  double sum;
  int32_t flag;
  assert_refused(gw_gang_all_reduce(g, x, y, 1, GW_F32, GW_REDUCE_NONE, NULL), "none");
  assert_refused(gw_gang_all_reduce(g, x, y, 1, GW_F32, 6, NULL), "unknown");
  assert_refused(gw_gang_all_reduce(g, x, y, 1, GW_F32, -1, NULL), "unknown");
  assert_refused(gw_gang_all_reduce(g, i, i, 1, GW_I32, GW_MEAN, NULL), "mean");
  assert_refused(gw_gang_all_reduce(g, x, y, 1, GW_C64, GW_SUM, NULL), "cannot be reduced");
  assert_refused(gw_gang_all_reduce(g, x, y, 1, GW_U16, GW_SUM, NULL), "cannot be reduced");
  assert_refused(gw_gang_all_reduce(g, b, b, 1, GW_BOOL, GW_SUM, NULL), "bool");
  assert_refused(gw_gang_all_reduce(g, NULL, y, 1, GW_F32, GW_SUM, NULL), "null");
  assert_refused(gw_gang_all_reduce(g, x, NULL, 1, GW_F32, GW_SUM, NULL), "null");
  assert_refused(gw_gang_all_reduce(g, x, x + 1, 2, GW_F32, GW_SUM, NULL), "overlap");
  assert_refused(gw_gang_all_reduce(g, x, y, SIZE_MAX / 2, GW_F32, GW_SUM, NULL), "address");
  assert_refused(gw_gang_all_gather(g, x, y, 1, GW_DTYPE_NONE, NULL), "moved");
  assert_refused(gw_gang_all_gather(g, x, y, 1, 0x22002, NULL), "moved");
  assert_refused(gw_gang_broadcast(g, x, y, 1, GW_F32, 2, NULL), "2 is outside [0, 2)");
  assert_refused(gw_gang_reduce(g, x, y, 1, GW_F32, GW_SUM, -1, NULL), "-1 is outside");
  assert_refused(gw_gang_gather(g, x, y, 1, GW_F32, 5, NULL), "5 is outside");
  assert_refused(gw_gang_scatter(g, x, y, 1, GW_F32, 5, NULL), "5 is outside");
  assert_refused(gw_gang_send(g, x, 1, GW_F32, 2, NULL), "2 is outside");
  assert_refused(gw_gang_recv(g, x, 1, GW_F32, -3, NULL), "-3 is outside");
  assert_refused(gw_gang_broadcast_bytes(g, "a", 1, 4, &bytes), "rank 4 is outside [0, ");
  assert_refused(gw_gang_broadcast_flag(g, 1, 4, &flag), "4 is outside");
  gw_collective record;
  gw_collective_init(&record, sizeof record);
  assert_int_equal(record.op, GW_OP_INVALID);
  assert_int_equal(record.peer, -1);
  assert_refused(gw_gang_run(g, &record, NULL, NULL), "op is -1");
  record.op = 11;
  assert_refused(gw_gang_run(g, &record, NULL, NULL), "op is 11");
  record.op = GW_BARRIER;
  record.count = 3;
  assert_refused(gw_gang_run(g, &record, NULL, NULL), "count is 3");
  assert_refused(gw_gang_run(g, NULL, NULL, NULL), "records is null");
  assert_refused(gw_gang_run_batch(g, NULL, 2, NULL, NULL), "records is null");
  gw_collective_init(NULL, 100);
  /* None of them broke the gang. */
  assert_ok(gw_gang_async_error(g));
  /* Null gangs and out-parameters. */
  gw_work* work = NULL;
  void* outputs[2] = {x, y};
  assert_refused(gw_gang_run(NULL, &record, NULL, &work), "null");
  gw_collective_init(&record, sizeof record);
  record.op = GW_BARRIER;
  assert_refused(gw_gang_run(NULL, &record, NULL, &work), "gang is null");
  assert_refused(gw_gang_run_batch(NULL, &record, 1, NULL, &work), "gang is null");
  assert_refused(gw_gang_barrier(NULL, NULL), "gang is null");
  assert_refused(gw_gang_barrier_async(NULL, NULL, &work), "gang is null");
  assert_refused(gw_gang_barrier_async(g, NULL, NULL), "out_work is null");
  assert_refused(gw_gang_all_reduce(NULL, x, y, 1, GW_F32, GW_SUM, NULL), "gang is null");
  assert_refused(gw_gang_all_reduce_async(NULL, x, y, 1, GW_F32, GW_SUM, NULL, &work), "gang is null");
  assert_refused(gw_gang_all_reduce_async(g, x, y, 1, GW_F32, GW_SUM, NULL, NULL), "out_work is null");
  assert_refused(gw_gang_all_gather(NULL, x, y, 1, GW_F32, NULL), "gang is null");
  assert_refused(gw_gang_all_gather_async(NULL, x, y, 1, GW_F32, NULL, &work), "gang is null");
  assert_refused(gw_gang_all_gather_async(g, x, y, 1, GW_F32, NULL, NULL), "out_work is null");
  assert_refused(gw_gang_all_gather_list(NULL, x, outputs, 1, GW_F32, NULL), "gang is null");
  assert_refused(gw_gang_all_gather_list(g, x, NULL, 1, GW_F32, NULL), "outputs is null");
  assert_refused(gw_gang_reduce_scatter(NULL, x, y, 1, GW_F32, GW_SUM, NULL), "gang is null");
  assert_refused(gw_gang_reduce_scatter_async(NULL, x, y, 1, GW_F32, GW_SUM, NULL, &work), "gang is null");
  assert_refused(gw_gang_reduce_scatter_async(g, x, y, 1, GW_F32, GW_SUM, NULL, NULL), "out_work is null");
  assert_refused(gw_gang_broadcast(NULL, x, y, 1, GW_F32, 0, NULL), "gang is null");
  assert_refused(gw_gang_broadcast_async(NULL, x, y, 1, GW_F32, 0, NULL, &work), "gang is null");
  assert_refused(gw_gang_broadcast_async(g, x, y, 1, GW_F32, 0, NULL, NULL), "out_work is null");
  assert_refused(gw_gang_reduce(NULL, x, y, 1, GW_F32, GW_SUM, 0, NULL), "gang is null");
  assert_refused(gw_gang_reduce_async(NULL, x, y, 1, GW_F32, GW_SUM, 0, NULL, &work), "gang is null");
  assert_refused(gw_gang_reduce_async(g, x, y, 1, GW_F32, GW_SUM, 0, NULL, NULL), "out_work is null");
  assert_refused(gw_gang_gather(NULL, x, y, 1, GW_F32, 0, NULL), "gang is null");
  assert_refused(gw_gang_gather_async(NULL, x, y, 1, GW_F32, 0, NULL, &work), "gang is null");
  assert_refused(gw_gang_gather_async(g, x, y, 1, GW_F32, 0, NULL, NULL), "out_work is null");
  assert_refused(gw_gang_scatter(NULL, x, y, 1, GW_F32, 0, NULL), "gang is null");
  assert_refused(gw_gang_scatter_async(NULL, x, y, 1, GW_F32, 0, NULL, &work), "gang is null");
  assert_refused(gw_gang_scatter_async(g, x, y, 1, GW_F32, 0, NULL, NULL), "out_work is null");
  assert_refused(gw_gang_all_to_all(NULL, x, y, 1, GW_F32, NULL), "gang is null");
  assert_refused(gw_gang_all_to_all_async(NULL, x, y, 1, GW_F32, NULL, &work), "gang is null");
  assert_refused(gw_gang_all_to_all_async(g, x, y, 1, GW_F32, NULL, NULL), "out_work is null");
  assert_refused(gw_gang_send(NULL, x, 1, GW_F32, 1, NULL), "gang is null");
  assert_refused(gw_gang_send_async(NULL, x, 1, GW_F32, 1, NULL, &work), "gang is null");
  assert_refused(gw_gang_send_async(g, x, 1, GW_F32, 1, NULL, NULL), "out_work is null");
  assert_refused(gw_gang_recv(NULL, x, 1, GW_F32, 1, NULL), "gang is null");
  assert_refused(gw_gang_recv_async(NULL, x, 1, GW_F32, 1, NULL, &work), "gang is null");
  assert_refused(gw_gang_recv_async(g, x, 1, GW_F32, 1, NULL, NULL), "out_work is null");
  assert_refused(gw_gang_broadcast_bytes(NULL, "a", 1, 0, &bytes), "gang is null");
  assert_refused(gw_gang_broadcast_bytes(g, "a", 1, 0, NULL), "out_bytes is null");
  assert_refused(gw_gang_broadcast_bytes(g, NULL, 1, 0, &bytes), "data is null");
  assert_refused(gw_gang_all_gather_bytes(NULL, "a", 1, sizes, &bytes), "gang is null");
  assert_refused(gw_gang_all_gather_bytes(g, "a", 1, NULL, &bytes), "out_sizes is null");
  assert_refused(gw_gang_all_gather_bytes(g, NULL, 1, sizes, &bytes), "data is null");
  assert_refused(gw_gang_all_gather_bytes(g, "a", 1, sizes, NULL), "out_bytes is null");
  assert_null(bytes);
  assert_refused(gw_gang_broadcast_flag(NULL, 1, 0, &flag), "gang is null");
  assert_refused(gw_gang_broadcast_flag(g, 1, 0, NULL), "out_flag is null");
  assert_refused(gw_gang_all_sum(NULL, 1, &sum), "gang is null");
  assert_refused(gw_gang_all_sum(g, 1, NULL), "out_sum is null");
  assert_null(work);
  assert_refused(gw_work_poll(NULL, &flag), "work is null");
  assert_refused(gw_work_wait(NULL, 0), "work is null");
  assert_refused(gw_work_wait_many(NULL, 1, 0), "works is null");
  assert_refused(gw_work_wait_many(&work, 1, 0), "is null");
  assert_ok(gw_work_wait_many(NULL, 0, 0));
  assert_refused(gw_work_order(NULL, NULL), "work is null");
  assert_refused(gw_work_error(NULL), "work is null");
  gw_work_release(NULL);
  gw_gang_free(g, memory);
  for (int k = 0; k < 2; ++k) gw_gang_release(gangs[k]);
}

/* One rank passes bad arguments: its call has not started, the gang is intact, and the peers' call ends when
 * that rank calls with good ones. */
static void calls_again(rank* me) {
  const float one = 1;
  float sum = 0;
  size_t sizes[2];
  void *x = NULL, *y = NULL;
  gw_bytes* bytes = NULL;
  EXPECT_OK(gw_gang_alloc(me->gang, sizeof one, &x));
  EXPECT_OK(gw_gang_alloc(me->gang, sizeof sum, &y));
  write_bytes(me->gang, x, &one, sizeof one);
  if (me->index == 1) {
    EXPECT_REFUSED(gw_gang_all_reduce(me->gang, NULL, y, 1, GW_F32, GW_SUM, NULL), "null");
    EXPECT_OK(gw_gang_async_error(me->gang));
  }
  EXPECT_OK(gw_gang_all_reduce(me->gang, x, y, 1, GW_F32, GW_SUM, NULL));
  read_bytes(me->gang, &sum, y, sizeof sum);
  EXPECT(sum == 2);
  gw_gang_free(me->gang, x);
  gw_gang_free(me->gang, y);
  if (me->index == 1) {
    EXPECT_REFUSED(gw_gang_all_gather_bytes(me->gang, NULL, 1, sizes, &bytes), "data is null");
    EXPECT_REFUSED(gw_gang_all_gather_bytes(me->gang, "b", 1, NULL, &bytes), "out_sizes is null");
    EXPECT_REFUSED(gw_gang_all_gather_bytes(me->gang, "b", 1, sizes, NULL), "out_bytes is null");
    EXPECT_OK(gw_gang_async_error(me->gang));
  }
  EXPECT_OK(gw_gang_all_gather_bytes(me->gang, me->index == 0 ? "a" : "b", 1, sizes, &bytes));
  EXPECT(gw_bytes_size(bytes) == 2 && memcmp(gw_bytes_data(bytes), "ab", 2) == 0);
  gw_bytes_release(bytes);
  if (me->index == 1) {
    EXPECT_REFUSED(gw_gang_broadcast_bytes(me->gang, NULL, 3, 1, &bytes), "data is null");
    EXPECT_REFUSED(gw_gang_broadcast_bytes(me->gang, "one", 3, 1, NULL), "out_bytes is null");
    EXPECT_OK(gw_gang_async_error(me->gang));
  }
  EXPECT_OK(gw_gang_broadcast_bytes(me->gang, me->index == 1 ? "one" : NULL, 3, 1, &bytes));
  EXPECT(gw_bytes_size(bytes) == 3 && memcmp(gw_bytes_data(bytes), "one", 3) == 0);
  gw_bytes_release(bytes);
}

static void a_call_refused_on_one_rank_may_be_called_again(void** state) {
  (void)state;
  run_ranks(2, calls_again, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(bad_collectives_are_refused),
                                     cmocka_unit_test(a_call_refused_on_one_rank_may_be_called_again)};
  return cmocka_run_group_tests_name("capi_gang_refusals", tests, NULL, NULL);
}

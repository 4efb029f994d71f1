/* Collectives: their values, records, and works in flight. */
#include "device_memory.h"

/* Floats of a rank, in memory of the gang's device. */
enum { kFloats = 64 };
static float* floats_of(rank* me) {
  const float zeros[kFloats] = {0};
  void* data = NULL;
  if (gw_gang_alloc(me->gang, sizeof zeros, &data) == GW_OK) write_bytes(me->gang, data, zeros, sizeof zeros);
  return data;
}
static void set(rank* me, float* to, size_t count, const float* values) {
  write_bytes(me->gang, to, values, count * sizeof *values);
}
static float get(rank* me, const float* from) {
  float value = 0;
  read_bytes(me->gang, &value, from, sizeof value);
  return value;
}

static void all_collectives(rank* me) {
  const int32_t n = me->size, r = me->index;
  float* const block = floats_of(me);
  EXPECT(block != NULL);
  float *const x = block, *const y = block + 8, *const many = block + 16, *const in = block + 24;
  set(me, x, 2, (float[]){(float)r, 10.0f});
  double sum = 0;
  int32_t flag = -1;
  EXPECT_OK(gw_gang_barrier(me->gang, NULL));
  EXPECT_OK(gw_gang_all_reduce(me->gang, x, y, 2, GW_F32, GW_SUM, NULL));
  EXPECT(get(me, y) == (float)(n * (n - 1) / 2) && get(me, y + 1) == 10.0f * (float)n);
  EXPECT_OK(gw_gang_all_reduce(me->gang, x, y, 2, GW_F32, GW_MEAN, NULL));
  EXPECT(get(me, y) == (float)(n - 1) / 2 && get(me, y + 1) == 10.0f);
  EXPECT_OK(gw_gang_all_reduce(me->gang, x, y, 1, GW_F32, GW_MAX, NULL));
  EXPECT(get(me, y) == (float)(n - 1));
  EXPECT_OK(gw_gang_all_gather(me->gang, x, many, 1, GW_F32, NULL));
  for (int32_t i = 0; i < n; ++i) EXPECT(get(me, many + i) == (float)i);
  void* outputs[3] = {block + 32, block + 34, block + 33};
  EXPECT_OK(gw_gang_all_gather_list(me->gang, x, outputs, 1, GW_F32, NULL));
  for (int32_t i = 0; i < n; ++i) EXPECT(get(me, outputs[i]) == (float)i);
  for (int32_t i = 0; i < n; ++i) set(me, in + i, 1, (float[]){(float)(10 * r + i)});
  EXPECT_OK(gw_gang_reduce_scatter(me->gang, in, y, 1, GW_F32, GW_SUM, NULL));
  EXPECT(get(me, y) == (float)(5 * n * (n - 1) + n * r));
  EXPECT_OK(gw_gang_all_to_all(me->gang, in, many, 1, GW_F32, NULL));
  for (int32_t i = 0; i < n; ++i) EXPECT(get(me, many + i) == (float)(10 * i + r));
  const int32_t root = n - 1;
  EXPECT_OK(gw_gang_broadcast(me->gang, r == root ? x : NULL, y, 1, GW_F32, root, NULL));
  EXPECT(get(me, y) == (float)root);
  EXPECT_OK(gw_gang_reduce(me->gang, x, r == root ? y : NULL, 1, GW_F32, GW_SUM, root, NULL));
  EXPECT(r != root || get(me, y) == (float)(n * (n - 1) / 2));
  EXPECT_OK(gw_gang_gather(me->gang, x, r == root ? many : NULL, 1, GW_F32, root, NULL));
  EXPECT(r != root || get(me, many + root) == (float)root);
  EXPECT_OK(gw_gang_scatter(me->gang, r == root ? in : NULL, y, 1, GW_F32, root, NULL));
  EXPECT(get(me, y) == (float)(10 * root + r));
  EXPECT_OK(gw_gang_all_sum(me->gang, 1.5, &sum));
  EXPECT(sum == 1.5 * n);
  EXPECT_OK(gw_gang_broadcast_flag(me->gang, r == root ? 5 : 0, root, &flag));
  EXPECT(flag == 1);
  size_t sizes[3];
  gw_bytes* bytes = NULL;
  EXPECT_OK(gw_gang_all_gather_bytes(me->gang, "abc", (size_t)r, sizes, &bytes));
  EXPECT(gw_bytes_size(bytes) == (size_t)(n * (n - 1) / 2) && sizes[n - 1] == (size_t)(n - 1));
  EXPECT(n < 3 || memcmp(gw_bytes_data(bytes), "aab", 3) == 0);
  gw_bytes_release(bytes);
  EXPECT_OK(gw_gang_broadcast_bytes(me->gang, r == root ? "text" : NULL, 4, root, &bytes));
  EXPECT(gw_bytes_size(bytes) == 4 && memcmp(gw_bytes_data(bytes), "text", 4) == 0);
  gw_bytes_release(bytes);
  /* A ring of single sends and receives. */
  if (n > 1) {
    const int32_t next = (r + 1) % n, before = (r + n - 1) % n;
    if (r == 0) {
      EXPECT_OK(gw_gang_send(me->gang, x, 1, GW_F32, next, NULL));
      EXPECT_OK(gw_gang_recv(me->gang, y, 1, GW_F32, before, NULL));
    } else {
      EXPECT_OK(gw_gang_recv(me->gang, y, 1, GW_F32, before, NULL));
      EXPECT_OK(gw_gang_send(me->gang, x, 1, GW_F32, next, NULL));
    }
    EXPECT(get(me, y) == (float)before);
  }
  EXPECT_OK(gw_gang_all_reduce(me->gang, NULL, NULL, 0, GW_F32, GW_SUM, NULL)); /* a count of 0 is legal */
  gw_gang_free(me->gang, block);
}

static void collectives_give_known_values(void** state) {
  (void)state;
  for (int32_t n = 1; n <= 3; ++n) run_ranks(n, all_collectives, NULL);
}

/* A message is visible to a probe until a receive asks for it. */
static void probes(rank* me) {
  const int32_t n = me->size, r = me->index;
  const int32_t next = (r + 1) % n, before = (r + n - 1) % n;
  float* const block = floats_of(me);
  EXPECT(block != NULL);
  float *const x = block, *const y = block + 8;
  set(me, x, 1, (float[]){(float)r});
  int32_t ready = -1;
  size_t count = 1;
  gw_dtype dtype = GW_F64;
  gw_work* work = NULL;
  const gw_status status = gw_gang_probe(me->gang, before, &ready, &count, &dtype);
  EXPECT_STATUS(status, on_gpus(test_device()) ? GW_E_NOT_SUPPORTED : GW_OK, NULL);
  EXPECT(ready == 0 && count == 0 && dtype == GW_DTYPE_NONE);
  if (status != GW_OK) return gw_gang_free(me->gang, block);
  EXPECT_OK(gw_gang_barrier(me->gang, NULL));
  EXPECT_OK(gw_gang_send_async(me->gang, x, 1, GW_F32, next, NULL, &work));
  while (ready == 0) EXPECT_OK(gw_gang_probe(me->gang, before, &ready, &count, &dtype));
  EXPECT(ready == 1 && count == 1 && dtype == GW_F32);
  EXPECT_OK(gw_gang_recv(me->gang, y, 1, GW_F32, before, NULL));
  EXPECT(get(me, y) == (float)before);
  EXPECT_OK(gw_gang_probe(me->gang, before, &ready, &count, &dtype));
  EXPECT(ready == 0);
  EXPECT_OK(gw_work_wait(work, -1));
  gw_work_release(work);
  gw_gang_free(me->gang, block);
}

static void probing_sees_a_message_that_no_receive_has_asked_for(void** state) {
  (void)state;
  for (int32_t n = 2; n <= 3; ++n) run_ranks(n, probes, NULL);
}

#define WAIT_AND_RELEASE(start)         \
  do {                                  \
    gw_work* work_ = NULL;              \
    EXPECT_OK(start);                   \
    EXPECT(work_ != NULL);              \
    EXPECT_OK(gw_work_wait(work_, -1)); \
    EXPECT_OK(gw_work_error(work_));    \
    gw_work_release(work_);             \
  } while (0)

static void all_async(rank* me) {
  const int32_t n = me->size, r = me->index, root = 0;
  float* const block = floats_of(me);
  EXPECT(block != NULL);
  float *const x = block, *const y = block + 8, *const many = block + 16, *const in = block + 24;
  set(me, x, 1, (float[]){(float)r + 1});
  set(me, in, 3, (float[]){1, 2, 3});
  WAIT_AND_RELEASE(gw_gang_barrier_async(me->gang, NULL, &work_));
  WAIT_AND_RELEASE(gw_gang_all_reduce_async(me->gang, x, y, 1, GW_F32, GW_SUM, NULL, &work_));
  EXPECT(get(me, y) == (float)(n * (n + 1) / 2));
  WAIT_AND_RELEASE(gw_gang_all_gather_async(me->gang, x, many, 1, GW_F32, NULL, &work_));
  EXPECT(get(me, many + n - 1) == (float)n);
  void* outputs[3] = {block + 32, block + 34, block + 33};
  WAIT_AND_RELEASE(gw_gang_all_gather_list_async(me->gang, x, outputs, 1, GW_F32, NULL, &work_));
  EXPECT(get(me, outputs[0]) == 1 && get(me, outputs[n - 1]) == (float)n);
  double sum = 0;
  WAIT_AND_RELEASE(gw_gang_all_sum_async(me->gang, 1.5, &sum, &work_));
  EXPECT(sum == 1.5 * n);
  int32_t flag = -1;
  WAIT_AND_RELEASE(gw_gang_broadcast_flag_async(me->gang, r == root ? 5 : 0, root, &flag, &work_));
  EXPECT(flag == 1);
  WAIT_AND_RELEASE(gw_gang_reduce_scatter_async(me->gang, in, y, 1, GW_F32, GW_SUM, NULL, &work_));
  EXPECT(get(me, y) == (float)(n * (r + 1)));
  WAIT_AND_RELEASE(gw_gang_broadcast_async(me->gang, x, y, 1, GW_F32, root, NULL, &work_));
  EXPECT(get(me, y) == 1);
  WAIT_AND_RELEASE(gw_gang_reduce_async(me->gang, x, y, 1, GW_F32, GW_SUM, root, NULL, &work_));
  EXPECT(r != root || get(me, y) == (float)(n * (n + 1) / 2));
  WAIT_AND_RELEASE(gw_gang_gather_async(me->gang, x, many, 1, GW_F32, root, NULL, &work_));
  WAIT_AND_RELEASE(gw_gang_scatter_async(me->gang, in, y, 1, GW_F32, root, NULL, &work_));
  EXPECT(get(me, y) == (float)(r + 1));
  WAIT_AND_RELEASE(gw_gang_all_to_all_async(me->gang, in, many, 1, GW_F32, NULL, &work_));
  EXPECT(get(me, many) == (float)(r + 1));
  if (n > 1) {
    gw_work* works[2] = {NULL, NULL};
    /* GPUs run them in the order of the calls, so one rank sends first. */
    const int sends_first = on_gpus(test_device()) && r == 0;
    if (sends_first) EXPECT_OK(gw_gang_send_async(me->gang, x, 1, GW_F32, (r + 1) % n, NULL, &works[1]));
    EXPECT_OK(gw_gang_recv_async(me->gang, y, 1, GW_F32, (r + n - 1) % n, NULL, &works[0]));
    if (!sends_first) EXPECT_OK(gw_gang_send_async(me->gang, x, 1, GW_F32, (r + 1) % n, NULL, &works[1]));
    EXPECT_OK(gw_work_wait_many(works, 2, -1));
    EXPECT(get(me, y) == (float)((r + n - 1) % n + 1));
    int32_t done = 0;
    EXPECT_OK(gw_work_poll(works[0], &done));
    EXPECT(done == 1);
    EXPECT_OK(gw_work_order(works[1], NULL));
    EXPECT(gw_work_retain(works[0]) == works[0] && gw_work_retain(NULL) == NULL);
    gw_work_release(works[0]);
    EXPECT_OK(gw_work_error(works[0]));
    for (int i = 0; i < 2; ++i) gw_work_release(works[i]);
  }
  gw_gang_free(me->gang, block);
}

static void async_collectives_give_known_values(void** state) {
  (void)state;
  for (int32_t n = 1; n <= 3; ++n) run_ranks(n, all_async, NULL);
}

static void records(rank* me) {
  const int32_t n = me->size, r = me->index;
  float* const block = floats_of(me);
  EXPECT(block != NULL);
  float *const x = block, *const out = block + 8, *const in = block + 16, *const all = block + 24;
  set(me, x, 1, (float[]){(float)r});
  EXPECT_OK(gw_gang_barrier(me->gang, NULL)); /* three ranks of GPUs need a barrier before a send */
  gw_collective batch[2];
  for (int i = 0; i < 2; ++i) gw_collective_init(&batch[i], sizeof batch[i]);
  batch[0].op = GW_SEND;
  batch[0].input = x;
  batch[0].peer = (r + 1) % n;
  batch[1].op = GW_RECV;
  batch[1].output = out;
  batch[1].peer = (r + n - 1) % n;
  for (int i = 0; i < 2; ++i) {
    batch[i].count = 1;
    batch[i].dtype = GW_F32;
  }
  EXPECT_OK(gw_gang_run_batch(me->gang, batch, 2, NULL, NULL));
  EXPECT(get(me, out) == (float)((r + n - 1) % n));
  /* Counts per rank: rank i sends i elements. */
  const size_t counts[3] = {0, 1, 2};
  set(me, in, 2, (float[]){(float)r, (float)r});
  gw_collective gather;
  gw_collective_init(&gather, sizeof gather);
  gather.op = GW_ALL_GATHER;
  gather.input = in;
  gather.output = all;
  gather.counts = counts;
  gather.dtype = GW_F32;
  gw_work* work = NULL;
  EXPECT_OK(gw_gang_run(me->gang, &gather, NULL, &work));
  EXPECT_OK(gw_work_wait(work, -1));
  gw_work_release(work);
  EXPECT(get(me, all) == 1 && get(me, all + 1) == 2 && get(me, all + 2) == 2);
  gw_collective add;
  gw_collective_init(&add, sizeof add);
  add.op = GW_ALL_REDUCE;
  add.reduce = GW_SUM;
  add.dtype = GW_F32;
  add.count = 1;
  add.input = x;
  add.output = out;
  add.accumulate = 1;
  set(me, out, 1, (float[]){100});
  EXPECT_OK(gw_gang_run(me->gang, &add, NULL, NULL));
  EXPECT(get(me, out) == 103);
  EXPECT_OK(gw_gang_run_batch(me->gang, NULL, 0, NULL, NULL));
  gw_gang_free(me->gang, block);
}

static void records_in_batches_and_with_counts(void** state) {
  (void)state;
  run_ranks(3, records, NULL);
}

static void works(rank* me) {
  float* const block = floats_of(me);
  EXPECT(block != NULL);
  float *const x = block, *const y = block + 8;
  set(me, x, 1, (float[]){1});
  int32_t done = -1, freed[3] = {0, 0, 0};
  double sum = 0;
  gw_work* work = NULL;
  EXPECT_OK(gw_gang_barrier(me->gang, NULL)); /* the first message of GPUs would wait for the peer */
  if (me->index == 0) {
    EXPECT_OK(gw_gang_recv_async(me->gang, y, 1, GW_F32, 1, NULL, &work));
    EXPECT_OK(gw_work_poll(work, &done));
    EXPECT(done == 0);
    EXPECT_STATUS(gw_work_wait(work, 1), GW_E_NOT_READY, NULL); /* the wait changes nothing */
    EXPECT_OK(gw_work_error(work));
    EXPECT_OK(gw_work_attach(work, &freed[0], count_free));
    EXPECT(freed[0] == 0);
    EXPECT_REFUSED(gw_work_attach(NULL, &freed[1], count_free), "work is null");
    EXPECT(freed[1] == 1); /* also if attaching fails */
    /* This sum does not run on the GPUs' stream, where the receive is. */
    EXPECT_OK(gw_gang_all_sum(me->gang, 1, &sum));
    EXPECT_OK(gw_work_wait(work, -1));
    EXPECT(get(me, y) == 1 && freed[0] == 1);
    EXPECT_OK(gw_work_poll(work, &done));
    EXPECT(done == 1);
    EXPECT_OK(gw_work_attach(work, &freed[2], count_free)); /* done, so it is freed at once */
    EXPECT(freed[2] == 1);
    EXPECT_REFUSED(gw_work_poll(work, NULL), "out_done is null");
    gw_work_release(work);
    EXPECT(freed[0] == 1 && freed[2] == 1);
  } else {
    EXPECT_OK(gw_gang_all_sum(me->gang, 1, &sum));
    EXPECT_OK(gw_gang_send(me->gang, x, 1, GW_F32, 0, NULL));
  }
  /* Released in flight: the work is neither cancelled nor waited for, and a later call frees what is
   * attached. */
  int32_t late = 0;
  if (me->index == 0) {
    set(me, y, 1, (float[]){0});
    EXPECT_OK(gw_gang_recv_async(me->gang, y, 1, GW_F32, 1, NULL, &work));
    EXPECT_OK(gw_work_attach(work, &late, count_free));
    gw_work_release(work);
    for (int i = 0; i < 4; ++i) EXPECT_OK(gw_gang_barrier(me->gang, NULL));
    EXPECT(late == 1 && get(me, y) == 1);
  } else {
    EXPECT_OK(gw_gang_send(me->gang, x, 1, GW_F32, 0, NULL));
    for (int i = 0; i < 4; ++i) EXPECT_OK(gw_gang_barrier(me->gang, NULL));
  }
  gw_gang_free(me->gang, block);
}

static void* meet(void* gang) {
  gw_gang_barrier(gang, NULL);
  return NULL;
}

static void works_in_flight(void** state) {
  (void)state;
  run_ranks(2, works, NULL);
}

/* The last handle of a rank is released with its gang, in either order. What is attached is freed in both. */
static void an_attached_object_is_freed_with_the_last_handle(void** state) {
  (void)state;
  SKIP_ON_GPUS("a receive in flight on a GPU ends with its message, or with the loss of its peer");
  for (int gang_first = 0; gang_first < 2; ++gang_first) {
    gw_gang* gangs[2];
    gw_work* work = NULL;
    void* y = NULL;
    int32_t freed = 0;
    pthread_t peer;
    two_gangs(gangs);
    assert_int_equal(pthread_create(&peer, NULL, meet, gangs[1]), 0);
    assert_ok(gw_gang_barrier(gangs[0], NULL));
    assert_int_equal(pthread_join(peer, NULL), 0);
    assert_ok(gw_gang_alloc(gangs[0], 4, &y));
    assert_ok(gw_gang_recv_async(gangs[0], y, 1, GW_F32, 1, NULL, &work));
    assert_ok(gw_work_attach(work, &freed, count_free));
    if (gang_first) gw_gang_release(gangs[0]);
    gw_work_release(work);
    if (!gang_first) gw_gang_release(gangs[0]);
    assert_int_equal(freed, 1);
    gw_gang_release(gangs[1]);
    gw_gang_free(NULL, y);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {test_on_device(collectives_give_known_values),
                                     test_on_device(async_collectives_give_known_values),
                                     test_on_device(probing_sees_a_message_that_no_receive_has_asked_for),
                                     test_on_device(records_in_batches_and_with_counts),
                                     test_on_device(works_in_flight),
                                     test_on_device(an_attached_object_is_freed_with_the_last_handle)};
  return cmocka_run_group_tests_name("capi_gang_collectives", tests, NULL, NULL);
}

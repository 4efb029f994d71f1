/* Gangs: creation, sub-gangs, and the fake gang. */
#include "device_memory.h"

static void one_rank_without_an_environment(void** state) {
  (void)state;
  gw_gang* gang = alone();
  assert_int_equal(gw_gang_rank(gang), 0);
  assert_int_equal(gw_gang_size(gang), 1);
  assert_string_equal(gw_gang_name(gang), "gang");
  assert_string_equal(gw_gang_engine(gang), "self");
  assert_string_equal(gw_gang_device(gang), test_device());
  assert_int_equal(gw_gang_rank(NULL), -1);
  assert_int_equal(gw_gang_size(NULL), -1);
  assert_string_equal(gw_gang_name(NULL), "");
  assert_string_equal(gw_gang_engine(NULL), "");
  assert_string_equal(gw_gang_device(NULL), "");
  assert_ptr_equal(gw_gang_retain(gang), gang);
  gw_gang_release(gang);
  assert_int_equal(gw_gang_size(gang), 1);
  gw_gang_release(gang);
  gw_gang_release(NULL);
  assert_null(gw_gang_retain(NULL));
}

// No other rank comes, so a rank that connected before its refusal would wait until its deadline.
static void refusals_come_before_a_rendezvous(void) {
  static const char id[64] = "an id";
  gw_gang* gang = NULL;
  gw_gang_options o;
#define REFUSED_WITH(field, value, part)           \
  gw_gang_options_init(&o, sizeof o);              \
  o.rank = 1;                                      \
  o.size = 2;                                      \
  o.id = id;                                       \
  o.id_size = sizeof id;                           \
  o.timeout_ms = 200;                              \
  o.field = value;                                 \
  assert_refused(gw_gang_create(&o, &gang), part); \
  assert_null(gang)
  REFUSED_WITH(device, "toaster", "toaster");
  REFUSED_WITH(engine, "bus", "engine \"bus\" is unknown");
  REFUSED_WITH(expected_size, 4, "expected_size is 4");
  REFUSED_WITH(liveness_ms, 49, "liveness_ms is 49, neither 0 (off) nor at least 50");
#undef REFUSED_WITH
}

static void bad_options_are_refused(void** state) {
  (void)state;
  gw_gang* gang = (gw_gang*)state;
  gw_gang_options o;
#define REFUSED_WITH(field, value, code, part)              \
  gw_gang_options_init(&o, sizeof o);                       \
  o.field = value;                                          \
  assert_refused_as(gw_gang_create(&o, &gang), code, part); \
  assert_null(gang)
  REFUSED_WITH(device, missing_device(), missing_code(), missing_device());
  REFUSED_WITH(device, "toaster", GW_E_INVALID_ARGUMENT, "toaster");
  REFUSED_WITH(engine, "nccl", GW_E_NOT_SUPPORTED, "nccl");
  REFUSED_WITH(engine, "bus", GW_E_INVALID_ARGUMENT, "engine \"bus\" is unknown");
  REFUSED_WITH(timeout_ms, -5, GW_E_INVALID_ARGUMENT, "timeout_ms is -5");
  REFUSED_WITH(liveness_ms, -5, GW_E_INVALID_ARGUMENT, "liveness_ms is -5");
  REFUSED_WITH(threads, -5, GW_E_INVALID_ARGUMENT, "threads is -5");
  REFUSED_WITH(expected_size, -5, GW_E_INVALID_ARGUMENT, "expected_size is -5");
  REFUSED_WITH(expected_size, 4, GW_E_INVALID_ARGUMENT, "expected_size is 4");
  REFUSED_WITH(id, "x", GW_E_INVALID_ARGUMENT, "no rank and size");
#undef REFUSED_WITH
  gw_gang_options_init(&o, sizeof o);
  o.rank = 3;
  o.size = 2;
  assert_refused(gw_gang_create(&o, &gang), "rank 3 is outside a gang of 2");
  o.rank = 0;
  assert_refused(gw_gang_create(&o, &gang), "no store, id or all_gather");
  o.id = "short";
  o.id_size = 5;
  assert_refused(gw_gang_create(&o, &gang), "id_size is 5");
  refusals_come_before_a_rendezvous();
  assert_refused(gw_gang_create(NULL, NULL), "out_gang is null");
  gw_gang_options_init(NULL, sizeof o);
  assert_refused(gw_gang_create_threads(0, NULL, &gang), "count is 0");
  assert_refused(gw_gang_create_threads(-2, NULL, &gang), "count is -2");
  assert_refused(gw_gang_create_threads(2, NULL, NULL), "out_gangs is null");
}

static void environment_is_checked(void** state) {
  (void)state;
  gw_gang* gang = NULL;
  setenv("RANK", "0", 1);
  assert_refused(gw_gang_create(NULL, &gang), "WORLD_SIZE");
  setenv("WORLD_SIZE", "two", 1);
  assert_refused(gw_gang_create(NULL, &gang), "WORLD_SIZE");
  setenv("WORLD_SIZE", "2", 1);
  setenv("RANK", "2", 1);
  assert_refused(gw_gang_create(NULL, &gang), "RANK");
  unsetenv("RANK");
  unsetenv("WORLD_SIZE");
}

static void ids_are_random(void** state) {
  (void)state;
  char a[64], b[64];
  size_t size = 0;
  assert_ok(gw_gang_id_create(a, sizeof a, &size));
  assert_int_equal(size, 64);
  assert_ok(gw_gang_id_create(b, sizeof b, &size));
  assert_memory_not_equal(a, b, 64);
  assert_refused(gw_gang_id_create(a, 63, &size), "capacity is 63");
  assert_int_equal(size, 0);
  assert_refused(gw_gang_id_create(NULL, 64, &size), "id is null");
  assert_refused(gw_gang_id_create(a, 64, NULL), "out_size is null");
}

static void sub_gangs(rank* me) {
  gw_gang* gang = NULL;
  const int32_t turned[2] = {2, 0}, twice[2] = {1, 1}, outside[2] = {0, 3}, negative[1] = {-1};
  EXPECT_OK(gw_gang_create_gang(me->gang, turned, 2, &gang));
  EXPECT((me->index == 1) == (gang == NULL));
  EXPECT(me->index != 2 || gw_gang_rank(gang) == 0);
  EXPECT(me->index != 0 || gw_gang_rank(gang) == 1);
  gw_gang_release(gang);
  EXPECT_REFUSED(gw_gang_create_gang(me->gang, twice, 2, &gang), "rank 1 stands twice");
  EXPECT(gang == NULL);
  EXPECT_REFUSED(gw_gang_create_gang(me->gang, outside, 2, &gang), "rank 3 is outside [0, 3)");
  EXPECT_REFUSED(gw_gang_create_gang(me->gang, negative, 1, &gang), "rank -1 is outside [0, 3)");
  EXPECT_REFUSED(gw_gang_create_gang(me->gang, NULL, 0, &gang), "empty");
  /* All ranks get the refusal of one rank, with that rank's text, and the gang goes on working. */
  EXPECT_REFUSED(gw_gang_create_gang(me->gang, me->index == 1 ? NULL : turned, 2, &gang), "ranks is null");
  EXPECT_REFUSED(gw_gang_create_gang(me->gang, me->index == 1 ? outside : turned, 2, &gang),
                 "rank 3 is outside [0, 3)");
  EXPECT_OK(gw_gang_async_error(me->gang));
  EXPECT_STATUS(gw_gang_create_gang(me->gang, turned, me->index == 1 ? 1 : 2, &gang), GW_E_MISMATCH,
                "rank 1");
  EXPECT_OK(gw_gang_split(me->gang, me->index == 2 ? -1 : 0, -me->index, &gang));
  EXPECT((me->index == 2) == (gang == NULL));
  EXPECT(gang == NULL || (gw_gang_size(gang) == 2 && gw_gang_rank(gang) == 1 - me->index));
  gw_gang_release(gang);
  EXPECT_OK(gw_gang_duplicate(me->gang, &gang));
  EXPECT(gw_gang_size(gang) == 3 && gw_gang_rank(gang) == me->index);
  /* Children keep their parents, so any order of release is allowed. */
  gw_gang_retain(me->gang);
  gw_gang_release(me->gang);
  EXPECT_OK(gw_gang_barrier(gang, NULL));
  EXPECT_OK(gw_gang_shutdown(gang, -1));
  EXPECT_STATUS(gw_gang_barrier(gang, NULL), GW_E_INVALID_STATE, "shut down");
  gw_gang_release(gang);
}

static void sub_gangs_keep_the_lists_order(void** state) {
  (void)state;
  run_ranks(3, sub_gangs, NULL);
  gw_gang* gang = NULL;
  const int32_t first = 0;
  assert_refused(gw_gang_create_gang(NULL, &first, 1, &gang), "gang is null");
  assert_refused(gw_gang_split(NULL, 0, 0, &gang), "gang is null");
  assert_refused(gw_gang_duplicate(NULL, &gang), "gang is null");
  gw_gang* own = alone();
  assert_refused(gw_gang_create_gang(own, &first, 1, NULL), "out_gang is null");
  assert_refused(gw_gang_split(own, 0, 0, NULL), "out_gang is null");
  assert_refused(gw_gang_duplicate(own, NULL), "out_gang is null");
  gw_gang_release(own);
}

static void fake_gang_acts_as_if_all_held_the_same(void** state) {
  (void)state;
  gw_gang* gang = NULL;
  assert_refused(gw_gang_create_fake(0, 0, NULL, &gang), "size is 0");
  assert_refused(gw_gang_create_fake(3, 3, NULL, &gang), "rank 3 is outside [0, 3)");
  gw_gang_options meta;
  gw_gang_options_init(&meta, sizeof meta);
  meta.device = "meta";
  assert_refused(gw_gang_create_fake(1, 3, &meta, &gang), "meta");
  assert_refused(gw_gang_create_fake(5, 0, &meta, &gang), "size is 0"); /* the checks have this order */
  assert_refused(gw_gang_create_fake(5, 3, &meta, &gang), "rank 5");
  assert_refused(gw_gang_create_fake(0, 1, NULL, NULL), "out_gang is null");
  gw_gang_options here;
  gw_gang_options_init(&here, sizeof here);
  here.device = test_device();
  assert_ok(gw_gang_create_fake(1, 3, &here, &gang));
  assert_string_equal(gw_gang_engine(gang), "fake");
  const float values[3] = {1, 2, 3};
  float got[9];
  void *x = NULL, *y = NULL;
  assert_ok(gw_gang_alloc(gang, sizeof values, &x));
  assert_ok(gw_gang_alloc(gang, sizeof got, &y));
  write_bytes(gang, x, values, sizeof values);
  assert_ok(gw_gang_all_reduce(gang, x, y, 3, GW_F32, GW_SUM, NULL));
  read_bytes(gang, got, y, sizeof got);
  assert_true(got[0] == 3 && got[2] == 9);
  assert_ok(gw_gang_all_reduce(gang, x, y, 3, GW_F32, GW_PRODUCT, NULL));
  read_bytes(gang, got, y, sizeof got);
  assert_true(got[1] == 8 && got[2] == 27);
  assert_ok(gw_gang_all_reduce(gang, x, y, 3, GW_F32, GW_MEAN, NULL));
  read_bytes(gang, got, y, sizeof got);
  assert_true(got[1] == 2);
  gw_collective chain[2]; /* the second reads what the first writes */
  for (int i = 0; i < 2; ++i) {
    gw_collective_init(&chain[i], sizeof chain[i]);
    chain[i].op = GW_ALL_REDUCE;
    chain[i].reduce = GW_SUM;
    chain[i].input = i == 0 ? x : y;
    chain[i].output = y;
    chain[i].count = 3;
    chain[i].dtype = GW_F32;
  }
  gw_work* work = NULL;
  assert_ok(gw_gang_run_batch(gang, chain, 2, NULL, &work));
  assert_ok(gw_work_wait(work, -1));
  gw_work_release(work);
  read_bytes(gang, got, y, sizeof got);
  assert_true(got[0] == 9 && got[2] == 27);
  assert_ok(gw_gang_all_gather(gang, x, y, 3, GW_F32, NULL));
  read_bytes(gang, got, y, sizeof got);
  assert_true(got[0] == 1 && got[3] == 1 && got[8] == 3);
  assert_ok(gw_gang_reduce_scatter(gang, x, y, 1, GW_F32, GW_SUM, NULL));
  read_bytes(gang, got, y, sizeof got);
  assert_true(got[0] == 6);
  assert_ok(gw_gang_broadcast(gang, x, y, 3, GW_F32, 1, NULL));
  read_bytes(gang, got, y, sizeof got);
  assert_true(got[0] == 1 && got[2] == 3);
  assert_refused(gw_gang_broadcast(gang, x, y, 3, GW_F32, 0, NULL), "but is 0");
  gw_gang_free(gang, x);
  gw_gang_free(gang, y);
  gw_gang_release(gang);
}

int main(void) {
  const struct CMUnitTest tests[] = {test_on_device(one_rank_without_an_environment),
                                     test_on_device(bad_options_are_refused),
                                     test_on_device(environment_is_checked),
                                     test_on_device(ids_are_random),
                                     test_on_device(sub_gangs_keep_the_lists_order),
                                     test_on_device(fake_gang_acts_as_if_all_held_the_same)};
  return cmocka_run_group_tests_name("capi_gang_create", tests, NULL, NULL);
}

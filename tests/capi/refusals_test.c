/* Refusals of gangs, their collectives, and meshes. */
#include "refusals.h"

static gw_gang* gang;
static gw_gangs* gangs;

static gw_gang_options defaults(void) {
  gw_gang_options o;
  gw_gang_options_init(&o, sizeof o);
  return o;
}
static gw_gang_options on(const char* device) {
  gw_gang_options o = defaults();
  o.device = device;
  return o;
}
static gw_gang* fake(int32_t rank, int32_t size) {
  gw_gang* made = NULL;
  assert_ok(gw_gang_create_fake(rank, size, NULL, &made));
  return made;
}

#define WITH(field, value) (o = defaults(), o.field = (value), gw_gang_create(&o, &gang))

static void bad_options_of_a_gang_are_refused(void** state) {
  (void)state;
  gw_gang_options o;
  gw_ext extension = {7, 0, NULL};
  check_row("an absent device", WITH(device, missing_device()), missing_code(), missing_device());
  ROW(WITH(device, "toaster"), INVALID_ARGUMENT, "\"toaster\"");
  ROW(WITH(engine, "nccl"), NOT_SUPPORTED, "nccl");
  ROW(WITH(engine, "bus"), INVALID_ARGUMENT, "\"bus\"");
  ROW(WITH(timeout_ms, -5), INVALID_ARGUMENT, "timeout_ms is -5");
  ROW(WITH(liveness_ms, -5), INVALID_ARGUMENT, "liveness_ms is -5");
  ROW(WITH(threads, -5), INVALID_ARGUMENT, "threads is -5");
  ROW(WITH(expected_size, -5), INVALID_ARGUMENT, "expected_size is -5");
  ROW(WITH(expected_size, 4), INVALID_ARGUMENT, "expected_size is 4");
  ROW(WITH(struct_size, 0), INVALID_ARGUMENT, "options.struct_size is 0");
  ROW(WITH(struct_size, 15), INVALID_ARGUMENT, "options.struct_size is 15");
  ROW(WITH(next, &extension), NOT_SUPPORTED, "an extension of kind 7");
  ROW((o = defaults(), o.rank = 3, o.size = 2, gw_gang_create(&o, &gang)), INVALID_ARGUMENT,
      "rank 3 is outside a gang of 2");
  ROW((o = defaults(), o.rank = -2, o.size = 2, gw_gang_create(&o, &gang)), INVALID_ARGUMENT,
      "rank -2 is outside a gang of 2");
  ROW(WITH(size, 2), INVALID_ARGUMENT, "size 2 but no rank");
  ROW((o = defaults(), o.rank = 0, o.size = 2, gw_gang_create(&o, &gang)), INVALID_ARGUMENT,
      "no store, id or all_gather");
  ROW((o = defaults(), o.rank = 0, o.size = 2, o.id = "short", o.id_size = 5, gw_gang_create(&o, &gang)),
      INVALID_ARGUMENT, "id_size is 5");
  ROW(WITH(id, "x"), INVALID_ARGUMENT, "no rank and size");
  ROW(gw_gang_create(NULL, NULL), INVALID_ARGUMENT, "out_gang is null");
  ROW(gw_gang_create_threads(0, NULL, &gang), INVALID_ARGUMENT, "count is 0");
  ROW(gw_gang_create_threads(-2, NULL, &gang), INVALID_ARGUMENT, "count is -2");
  assert_null(gang);
  end_of_table();
}

/* gw_gang_create with two environment variables set. */
static gw_status in_environment(const char* a, const char* a_value, const char* b, const char* b_value) {
  setenv(a, a_value, 1);
  if (b != NULL) setenv(b, b_value, 1);
  const gw_status status = gw_gang_create(NULL, &gang);
  unsetenv(a);
  if (b != NULL) unsetenv(b);
  return status;
}

static void environments(void** state) {
  (void)state;
  ROW(in_environment("RANK", "0", NULL, NULL), INVALID_ARGUMENT, "WORLD_SIZE");
  ROW(in_environment("WORLD_SIZE", "2", NULL, NULL), INVALID_ARGUMENT, "RANK");
  ROW(in_environment("RANK", "one", "WORLD_SIZE", "2"), INVALID_ARGUMENT, "RANK");
  ROW(in_environment("RANK", "0", "WORLD_SIZE", "two"), INVALID_ARGUMENT, "WORLD_SIZE");
  ROW(in_environment("RANK", "2", "WORLD_SIZE", "2"), INVALID_ARGUMENT, "RANK");
  ROW(in_environment("RANK", "-1", "WORLD_SIZE", "2"), INVALID_ARGUMENT, "RANK");
  ROW(in_environment("RANK", "0", "WORLD_SIZE", "0"), INVALID_ARGUMENT, "WORLD_SIZE");
  ROW(in_environment("LOCAL_RANK", "0", NULL, NULL), INVALID_ARGUMENT, "LOCAL_WORLD_SIZE");
  ROW(in_environment("LOCAL_WORLD_SIZE", "1", NULL, NULL), INVALID_ARGUMENT, "LOCAL_RANK");
  ROW(in_environment("SLURM_PROCID", "0", NULL, NULL), INVALID_ARGUMENT, "SLURM_NTASKS");
  ROW(in_environment("OMPI_COMM_WORLD_RANK", "0", NULL, NULL), INVALID_ARGUMENT, "OMPI_COMM_WORLD_SIZE");
  ROW(in_environment("PMI_RANK", "0", NULL, NULL), INVALID_ARGUMENT, "PMI_SIZE");
  assert_null(gang);
  end_of_table();
}

static void fake_gangs(void** state) {
  (void)state;
  gw_gang_options meta = on("meta");
  gw_gang* f = fake(1, 2);
  float x[4] = {0}, y[4];
  /* The checks have this order: the size, the rank, the device. */
  ROW(gw_gang_create_fake(5, 0, &meta, &gang), INVALID_ARGUMENT, "size");
  ROW(gw_gang_create_fake(0, -1, NULL, &gang), INVALID_ARGUMENT, "size is -1");
  ROW(gw_gang_create_fake(2, 2, &meta, &gang), INVALID_ARGUMENT, "rank");
  ROW(gw_gang_create_fake(-1, 2, NULL, &gang), INVALID_ARGUMENT, "rank -1 is outside");
  ROW(gw_gang_create_fake(0, 2, &meta, &gang), INVALID_ARGUMENT, "meta");
  ROW(gw_gangs_create_fake("meta", &gangs), INVALID_ARGUMENT, "meta");
  ROW(gw_gang_broadcast(f, x, y, 1, GW_F32, 0, NULL), INVALID_ARGUMENT, "own rank 1");
  assert_null(gang);
  gw_gang_release(f);
  end_of_table();
}

static void collectives(void** state) {
  (void)state;
  gw_gang* g = fake(0, 2);
  float x[4] = {0}, y[4];
  int32_t i[2] = {0}, flag;
  uint8_t b[2] = {0};
  void* data = NULL;
  gw_bytes* bytes = NULL;
  gw_work* work = NULL;
  /* Dtypes and reductions. */
  ROW(gw_gang_all_reduce(g, i, i, 1, GW_I32, GW_MEAN, NULL), INVALID_ARGUMENT, "mean");
  ROW(gw_gang_all_reduce(g, x, y, 1, GW_F32, GW_REDUCE_NONE, NULL), INVALID_ARGUMENT, "none");
  ROW(gw_gang_all_reduce(g, x, y, 1, GW_F32, 6, NULL), INVALID_ARGUMENT, "unknown");
  ROW(gw_gang_all_reduce(g, x, y, 1, GW_C64, GW_SUM, NULL), INVALID_ARGUMENT, "cannot be reduced");
  ROW(gw_gang_all_reduce(g, x, y, 1, GW_U16, GW_SUM, NULL), INVALID_ARGUMENT, "cannot be reduced");
  ROW(gw_gang_all_reduce(g, b, b, 1, GW_BOOL, GW_SUM, NULL), INVALID_ARGUMENT, "bool");
  ROW(gw_gang_all_reduce(g, b, b, 1, GW_BOOL, GW_PRODUCT, NULL), INVALID_ARGUMENT, "bool");
  ROW(gw_gang_all_gather(g, x, y, 1, GW_DTYPE_NONE, NULL), INVALID_ARGUMENT, "moved");
  ROW(gw_gang_all_gather(g, x, y, 1, 0x22002, NULL), INVALID_ARGUMENT, "moved");
  /* Memory and streams. */
  ROW(gw_gang_all_reduce(g, NULL, y, 1, GW_F32, GW_SUM, NULL), INVALID_ARGUMENT, "null");
  ROW(gw_gang_all_reduce(g, x, NULL, 1, GW_F32, GW_SUM, NULL), INVALID_ARGUMENT, "null");
  ROW(gw_gang_all_reduce(g, x, x + 1, 2, GW_F32, GW_SUM, NULL), INVALID_ARGUMENT, "overlap");
  ROW(gw_gang_all_reduce(g, x, y, SIZE_MAX / 2, GW_F32, GW_SUM, NULL), INVALID_ARGUMENT, "address");
  ROW(gw_gang_all_reduce(g, x, y, 1, GW_F32, GW_SUM, x), INVALID_ARGUMENT, "stream is not null");
  ROW(gw_gang_alloc(g, (size_t)1 << 62, &data), OUT_OF_MEMORY, NULL);
  /* Roots and peers are ranks of the gang, in [0, size). */
  ROW(gw_gang_broadcast(g, x, y, 1, GW_F32, 2, NULL), INVALID_ARGUMENT, "2 is outside [0, 2)");
  ROW(gw_gang_broadcast(g, x, y, 1, GW_F32, -1, NULL), INVALID_ARGUMENT, "-1 is outside [0, 2)");
  ROW(gw_gang_reduce(g, x, y, 1, GW_F32, GW_SUM, 2, NULL), INVALID_ARGUMENT, "2 is outside [0, 2)");
  ROW(gw_gang_gather(g, x, y, 1, GW_F32, 2, NULL), INVALID_ARGUMENT, "2 is outside [0, 2)");
  ROW(gw_gang_scatter(g, x, y, 1, GW_F32, 2, NULL), INVALID_ARGUMENT, "2 is outside [0, 2)");
  ROW(gw_gang_send(g, x, 1, GW_F32, 2, NULL), INVALID_ARGUMENT, "2 is outside [0, 2)");
  ROW(gw_gang_recv(g, x, 1, GW_F32, -3, NULL), INVALID_ARGUMENT, "-3 is outside [0, 2)");
  size_t message = 1;
  gw_dtype word = GW_F32;
  ROW(gw_gang_probe(g, 2, &flag, &message, &word), INVALID_ARGUMENT, "2 is outside [0, 2)");
  assert_true(flag == 0 && message == 0 && word == GW_DTYPE_NONE);
  ROW(gw_gang_broadcast_bytes(g, "a", 1, 2, &bytes), INVALID_ARGUMENT, "2 is outside [0, 2)");
  ROW(gw_gang_broadcast_flag(g, 1, 2, &flag), INVALID_ARGUMENT, "2 is outside [0, 2)");
  assert_int_equal(flag, 0);
  ROW(gw_gang_broadcast_flag_async(g, 1, 2, &flag, &work), INVALID_ARGUMENT, "2 is outside [0, 2)");
  assert_int_equal(flag, 0);
  ROW(gw_gang_native_handle(g, &data), NOT_SUPPORTED, "fake");
  gw_gang_release(g);
  end_of_table();
}

static void bad_sub_gangs_and_shutdowns_are_refused(void** state) {
  (void)state;
  gw_gang *g = fake(0, 4), *broken = fake(0, 2), *closed = fake(0, 2);
  const int32_t twice[3] = {1, 0, 1}, both[3] = {0, 7, 0}, size[2] = {0, 4}, negative[2] = {3, -1},
                good[2] = {0, 1};
  ROW(gw_gang_create_gang(g, twice, 3, &gang), INVALID_ARGUMENT, "rank 1");
  ROW(gw_gang_create_gang(g, both, 3, &gang), INVALID_ARGUMENT, "rank 0"); /* duplicates are checked first */
  ROW(gw_gang_create_gang(g, size, 2, &gang), INVALID_ARGUMENT, "rank 4 is outside [0, 4)");
  ROW(gw_gang_create_gang(g, negative, 2, &gang), INVALID_ARGUMENT, "rank -1 is outside [0, 4)");
  ROW(gw_gang_create_gang(g, good, 0, &gang), INVALID_ARGUMENT, "empty");
  ROW(gw_gang_create_gang(g, NULL, 2, &gang), INVALID_ARGUMENT, "ranks is null");
  assert_int_equal(gw_gang_abort(broken, "no more of this"), GW_OK); /* leaves the last error as it is */
  ROW(gw_gang_barrier(broken, NULL), ABORTED, "no more of this");
  ROW(gw_gang_async_error(broken), ABORTED, "no more of this");
  ROW(gw_gang_create_gang(broken, good, 1, &gang), ABORTED, "no more of this");
  assert_ok(gw_gang_shutdown(closed, -1));
  ROW(gw_gang_barrier(closed, NULL), INVALID_STATE, "shut down");
  assert_null(gang);
  gw_gang_release(g);
  gw_gang_release(broken);
  gw_gang_release(closed);
  end_of_table();
}

static gw_mesh_options mesh(int32_t pp, int32_t dp_replicate, int32_t dp_shard, int32_t cp, int32_t tp) {
  gw_mesh_options m;
  gw_mesh_options_init(&m, sizeof m);
  m.pp = pp;
  m.dp_replicate = dp_replicate;
  m.dp_shard = dp_shard;
  m.cp = cp;
  m.tp = tp;
  return m;
}
#define MESH(pp, rep, shard, cp, tp) (m = mesh(pp, rep, shard, cp, tp), gw_gangs_create(g, &m, &gangs))

static void meshes(void** state) {
  (void)state;
  gw_gang* g = fake(0, 8);
  gw_gangs *good = NULL, *other = NULL, *closed = NULL, *with_cp = NULL;
  gw_mesh_options m;
  int32_t index, degree;
  assert_ok(gw_gangs_create_parallel(g, 2, 1, 1, &good));
  assert_ok(gw_gangs_create_parallel(g, 2, 1, 1, &other));
  assert_ok(gw_gangs_create_parallel(g, 1, 1, 2, &with_cp));
  assert_ok(gw_gangs_create_parallel(g, 1, 1, 1, &closed));
  assert_ok(gw_gangs_shutdown(closed, -1));
  ROW(MESH(2, 1, 3, 1, 2), INVALID_ARGUMENT,
      "pp 2 x dp_replicate 1 x dp_shard 3 x cp 1 x tp 2 = 12, but the root gang has 8 ranks");
  ROW(MESH(1, 1, -1, 1, 3), INVALID_ARGUMENT,
      "pp 1 x dp_replicate 1 x dp_shard auto x cp 1 x tp 3 = 3 x auto, but the root gang has 8 ranks");
  ROW(MESH(1, 1, -1, 1, -1), INVALID_ARGUMENT, "dp_shard and tp");
  ROW(MESH(0, 1, -1, 1, 1), INVALID_ARGUMENT, "pp is 0, but a degree is at least 1");
  ROW(MESH(1, -2, 1, 1, 1), INVALID_ARGUMENT, "dp_replicate is -2");
  ROW(gw_gangs_create_parallel(g, 3, 1, 1, &gangs), INVALID_ARGUMENT,
      "tp 3 is not a factor of the root gang's 8 ranks");
  ROW(gw_gangs_create_parallel(g, 0, 1, 1, &gangs), INVALID_ARGUMENT, "tp 0 is not a factor");
  ROW(gw_gangs_create_parallel(g, 1, 5, 1, &gangs), INVALID_ARGUMENT, "pp 5 is not a factor");
  ROW(gw_gangs_create_parallel(g, 1, 1, -1, &gangs), INVALID_ARGUMENT, "cp -1 is not a factor");
  ROW(gw_gangs_create_parallel(g, 4, 4, 1, &gangs), INVALID_ARGUMENT, "8 ranks");
  ROW(gw_gangs_create_fsdp(good, 1, &gangs), INVALID_ARGUMENT, "intra_node_size 1");
  ROW(gw_gangs_create_fsdp(good, -4, &gangs), INVALID_ARGUMENT, "intra_node_size -4");
  ROW(gw_gangs_create_fsdp(good, 3, &gangs), INVALID_ARGUMENT,
      "intra_node_size 3 is not a factor over 1 of the dp gang's 4 ranks");
  ROW(gw_gangs_create_fsdp(with_cp, 2, &gangs), INVALID_ARGUMENT, "cp is 2");
  ROW(gw_gangs_get(good, "row", &gang), INVALID_ARGUMENT, "\"row\"");
  ROW(gw_gangs_get(good, "tp+tp", &gang), INVALID_ARGUMENT, "named twice");
  ROW(gw_gangs_get(good, "", &gang), INVALID_ARGUMENT, NULL);
  ROW(gw_gangs_get(closed, "dp", &gang), INVALID_STATE, "closed");
  ROW(gw_gangs_coordinate(good, "dp", &index, &degree), INVALID_ARGUMENT, "product");
  ROW(gw_gangs_pop_current(good), INVALID_STATE, "empty");
  assert_ok(gw_gangs_push_current(good));
  ROW(gw_gangs_pop_current(other), INVALID_STATE, NULL);
  assert_ok(gw_gangs_pop_current(good));
  assert_null(gang);
  assert_null(gangs);
  gw_gangs_release(good);
  gw_gangs_release(other);
  gw_gangs_release(closed);
  gw_gangs_release(with_cp);
  gw_gang_release(g);
  end_of_table();
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(bad_options_of_a_gang_are_refused),
                                     cmocka_unit_test(environments),
                                     cmocka_unit_test(fake_gangs),
                                     cmocka_unit_test(collectives),
                                     cmocka_unit_test(bad_sub_gangs_and_shutdowns_are_refused),
                                     cmocka_unit_test(meshes)};
  return cmocka_run_group_tests_name("capi_refusals", tests, NULL, NULL);
}

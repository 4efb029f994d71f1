#include "testing.h"

static void mesh_of_threads(rank* me) {
  gw_mesh_options o;
  gw_mesh_options_init(&o, sizeof o);
  EXPECT(o.pp == 1 && o.dp_replicate == 1 && o.dp_shard == -1 && o.cp == 1 && o.tp == 1);
  o.tp = 2;
  gw_gangs* gangs = NULL;
  EXPECT_OK(gw_gangs_create(me->gang, &o, &gangs));
  /* rank = shard * 2 + tp */
  int32_t index = -1, degree = -1;
  EXPECT_OK(gw_gangs_coordinate(gangs, "tp", &index, &degree));
  EXPECT(index == me->index % 2 && degree == 2);
  EXPECT_OK(gw_gangs_coordinate(gangs, "dp_shard", &index, &degree));
  EXPECT(index == me->index / 2 && degree == 2);
  EXPECT_OK(gw_gangs_data_shard(gangs, &index, &degree));
  EXPECT(index == me->index / 2 && degree == 2);
  EXPECT_REFUSED(gw_gangs_coordinate(gangs, "dp_replicate+dp_shard", &index, &degree), "product");
  EXPECT_REFUSED(gw_gangs_coordinate(gangs, "row", &index, &degree), "axis \"row\" in \"row\" is unknown");
  static const struct {
    const char* axes;
    int32_t size;
  } places[] = {
      {"root", 4},       {"dp", 2}, {"rdp", 1},      {"sdp", 2},         {"tp", 2},
      {"pp", 1},         {"cp", 1}, {"dp_shard", 2}, {"dp_shard+cp", 2}, {"dp_replicate+dp_shard+cp", 2},
      {"dp_shard+tp", 4}};
  for (size_t i = 0; i < sizeof places / sizeof *places; ++i) {
    gw_gang* gang = NULL;
    double sum = 0;
    EXPECT_OK(gw_gangs_get(gangs, places[i].axes, &gang));
    EXPECT(gw_gang_size(gang) == places[i].size);
    EXPECT_OK(gw_gang_all_sum(gang, 1, &sum));
    EXPECT(sum == places[i].size);
    gw_gang_release(gang);
  }
  gw_gang* gang = NULL;
  EXPECT_REFUSED(gw_gangs_get(gangs, "row", &gang), "axis \"row\" in \"row\" is unknown");
  EXPECT(gang == NULL);
  EXPECT(gw_gangs_retain(gangs) == gangs);
  gw_gangs_release(gangs);
  EXPECT_OK(gw_gangs_shutdown(gangs, -1));
  gw_gangs_release(gangs);
}

static void mesh_places_ranks_by_the_formula(void** state) {
  (void)state;
  run_ranks(4, mesh_of_threads, NULL);
}

static void refused_meshes(rank* me) {
  gw_gangs* gangs = (gw_gangs*)me;
  gw_mesh_options o;
  gw_mesh_options_init(&o, sizeof o);
  o.pp = 2;
  o.dp_shard = 3;
  o.tp = 2;
  EXPECT_REFUSED(gw_gangs_create(me->gang, &o, &gangs),
                 "pp 2 x dp_replicate 1 x dp_shard 3 x cp 1 x tp 2 = 12, but the root gang has 2 ranks");
  EXPECT(gangs == NULL);
  gw_mesh_options_init(&o, sizeof o);
  o.tp = -1;
  EXPECT_REFUSED(gw_gangs_create(me->gang, &o, &gangs), "dp_shard and tp");
  o.tp = 0;
  EXPECT_REFUSED(gw_gangs_create(me->gang, &o, &gangs), "tp is 0, but a degree is at least 1");
  /* All ranks get the refusal of one rank. */
  gw_mesh_options_init(&o, sizeof o);
  if (me->index == 1) o.struct_size = 3;
  EXPECT_REFUSED(gw_gangs_create(me->gang, &o, &gangs), "struct_size is 3");
  EXPECT(last_error().rank == 1);
  EXPECT_REFUSED(gw_gangs_create_parallel(me->gang, 0, 1, 1, &gangs), "tp 0 is not a factor");
  EXPECT_REFUSED(gw_gangs_create_parallel(me->gang, 3, 1, 1, &gangs), "tp 3 is not a factor");
  EXPECT_REFUSED(gw_gangs_create_parallel(me->gang, me->index == 0 ? 3 : 1, 1, 1, &gangs),
                 "tp 3 is not a factor");
  EXPECT_OK(gw_gangs_create_parallel(me->gang, 1, 1, 1, &gangs));
  gw_gangs* by_node = NULL;
  EXPECT_REFUSED(gw_gangs_create_fsdp(gangs, 1, &by_node), "intra_node_size 1 is not a factor");
  EXPECT_REFUSED(gw_gangs_create_fsdp(gangs, 3, &by_node), "intra_node_size 3 is not a factor");
  EXPECT_OK(gw_gangs_create_fsdp(gangs, 0, &by_node));
  gw_gang* gang = NULL;
  EXPECT_OK(gw_gangs_get(by_node, "sdp", &gang));
  EXPECT(gw_gang_size(gang) == 2);
  gw_gang_release(gang);
  EXPECT_OK(gw_gangs_get(by_node, "rdp", &gang));
  EXPECT(gw_gang_size(gang) == 1);
  gw_gang_release(gang);
  gw_gangs_release(by_node);
  /* The check comes before the barrier, because rank 0 may abort as soon as it has left the barrier. */
  EXPECT_OK(gw_gang_async_error(me->gang));
  EXPECT_OK(gw_gang_barrier(me->gang, NULL));
  if (me->index == 0) EXPECT_OK(gw_gangs_abort(gangs, "no more"));
  EXPECT_OK(gw_gangs_get(gangs, "dp", &gang));
  EXPECT_STATUS(gw_gang_barrier(gang, NULL), GW_E_ABORTED, "no more");
  gw_gang_release(gang);
  gw_gangs_release(gangs);
}

static void bad_meshes_are_refused_on_every_rank(void** state) {
  (void)state;
  run_ranks(2, refused_meshes, NULL);
}

static void own_gangs(rank* me) {
  gw_gangs *made = NULL, *gangs = NULL;
  gw_mesh_options o;
  gw_mesh_options_init(&o, sizeof o);
  EXPECT_REFUSED(gw_mesh_options_preset(&o, "zero", 1), "single, ddp, fsdp, hsdp, tp, tp+fsdp, pp, 3d");
  EXPECT_REFUSED(gw_mesh_options_preset(&o, "hsdp", 0), "a node has 0 ranks");
  EXPECT_OK(gw_mesh_options_preset(&o, "tp+fsdp", 2));
  EXPECT(o.pp == 1 && o.dp_replicate == 1 && o.dp_shard == -1 && o.cp == 1 && o.tp == 2);
  EXPECT_OK(gw_gangs_create(me->gang, &o, &made));
  gw_gang_places places;
  gw_gang_places_init(&places, sizeof places);
  places.root = me->gang;
  gw_gang** const place[] = {&places.dp, &places.rdp, &places.sdp, &places.tp, &places.pp, &places.cp};
  const char* const names[] = {"dp", "rdp", "sdp", "tp", "pp", "cp"};
  for (int i = 0; i < 6; ++i) EXPECT_OK(gw_gangs_get(made, names[i], place[i]));
  gw_gang* const tp = places.tp;
  if (me->index == 3) places.tp = NULL;
  EXPECT_REFUSED(gw_gangs_create_of(&places, &gangs), "the tp gang is missing");
  places.tp = tp;
  EXPECT_OK(gw_gangs_create_of(&places, &gangs));
  for (int i = 0; i < 6; ++i) gw_gang_release(*place[i]);
  int32_t index = -1, degree = 0;
  EXPECT_OK(gw_gangs_coordinate(gangs, "tp", &index, &degree));
  EXPECT(degree == 2 && index == me->index % 2);

  /* A call without gangs uses the current gangs. */
  EXPECT_OK(gw_gangs_push_current(gangs));
  gw_shard_group* group = NULL;
  gw_parameter_options w;
  gw_parameter_options_init(&w, sizeof w);
  w.name = "w", w.dims[0] = 4, w.ndim = 1;
  EXPECT_STATUS(gw_shard_group_create(NULL, "g", &w, 1, NULL, 1, &group), GW_E_NOT_SUPPORTED, "tp is 2");
  EXPECT_OK(gw_gangs_pop_current(gangs));
  EXPECT_OK(gw_shard_group_create(NULL, "g", &w, 1, NULL, 1, &group)); /* of one rank */
  gw_shard_group_release(group);
  gw_gangs_release(gangs);
  gw_gangs_release(made);
}

static void gangs_of_the_callers_gangs_are_a_mesh(void** state) {
  (void)state;
  run_ranks(4, own_gangs, NULL);
}

static void by_node(rank* me) {
  gw_gangs *gangs = NULL, *split = NULL;
  gw_gang* gang = NULL;
  EXPECT_OK(gw_gangs_create_parallel(me->gang, 1, 1, 1, &gangs));
  EXPECT_OK(gw_gangs_create_fsdp(gangs, 2, &split));
  EXPECT_OK(gw_gangs_get(split, "sdp", &gang));
  EXPECT(gw_gang_size(gang) == 2 && gw_gang_rank(gang) == me->index % 2);
  gw_gang_release(gang);
  EXPECT_OK(gw_gangs_get(split, "rdp", &gang));
  EXPECT(gw_gang_size(gang) == 2 && gw_gang_rank(gang) == me->index / 2);
  gw_gang_release(gang);
  gw_gangs_release(gangs);
  gw_gangs_release(split);
}

static void meshes_split_dp_by_node(void** state) {
  (void)state;
  run_ranks(4, by_node, NULL);
}

static void current_gangs_are_a_stack(void** state) {
  (void)state;
  gw_gangs *a = NULL, *b = NULL, *got = NULL;
  assert_ok(gw_gangs_create_fake(test_device(), &a));
  assert_ok(gw_gangs_create_fake(NULL, &b));
  assert_ok(gw_gangs_current(NULL, &got));
  assert_null(got);
  assert_refused_as(gw_gangs_pop_current(a), GW_E_INVALID_STATE, "empty");
  assert_ok(gw_gangs_push_current(a));
  assert_ok(gw_gangs_push_current(b));
  assert_refused_as(gw_gangs_pop_current(a), GW_E_INVALID_STATE, NULL); /* it is not the last one pushed */
  assert_ok(gw_gangs_pop_current(b));
  assert_ok(gw_gangs_current(NULL, &got));
  assert_non_null(got);
  assert_ok(gw_gangs_pop_current(got)); /* another handle of the same gangs */
  gw_gangs_release(got);
  assert_ok(gw_gangs_current(test_device(), &got)); /* fake gangs of one rank */
  gw_gang* gang = NULL;
  assert_ok(gw_gangs_get(got, "dp", &gang));
  assert_string_equal(gw_gang_engine(gang), "fake");
  assert_int_equal(gw_gang_size(gang), 1);
  gw_gang_release(gang);
  gw_gangs_release(got);
  assert_ok(gw_gangs_set_default(test_device(), a));
  assert_ok(gw_gangs_current(test_device(), &got));
  assert_ok(gw_gangs_push_current(got));
  assert_ok(gw_gangs_pop_current(a)); /* the same gangs */
  gw_gangs_release(got);
  assert_ok(gw_gangs_set_default(test_device(), NULL));
  gw_gangs_release(a);
  gw_gangs_release(b);
}

static void nulls_are_refused(void** state) {
  (void)state;
  gw_gangs* gangs = NULL;
  gw_gang* gang = NULL;
  int32_t i, n;
  assert_refused(gw_gangs_create(NULL, NULL, NULL), "out_gangs is null");
  assert_refused(gw_gangs_create_parallel(NULL, 1, 1, 1, &gangs), "root is null");
  assert_refused(gw_gangs_create_fsdp(NULL, 0, &gangs), "gangs is null");
  assert_refused(gw_gangs_create_fake("cpu", NULL), "out_gangs is null");
  assert_refused(gw_gangs_create_fake("meta", &gangs), "meta");
  assert_refused_as(gw_gangs_create_fake(missing_device(), &gangs), missing_code(), missing_device());
  assert_ok(gw_gangs_create(NULL, NULL, &gangs)); /* of one rank */
  assert_refused(gw_gangs_get(NULL, "dp", &gang), "gangs is null");
  assert_refused(gw_gangs_get(gangs, NULL, &gang), "axes is null");
  assert_refused(gw_gangs_get(gangs, "dp", NULL), "out_gang is null");
  assert_refused(gw_gangs_coordinate(NULL, "tp", &i, &n), "gangs is null");
  assert_refused(gw_gangs_coordinate(gangs, NULL, &i, &n), "axis is null");
  assert_refused(gw_gangs_coordinate(gangs, "tp", NULL, &n), "out_index is null");
  assert_refused(gw_gangs_coordinate(gangs, "tp", &i, NULL), "out_degree is null");
  assert_refused(gw_gangs_data_shard(NULL, &i, &n), "gangs is null");
  assert_refused(gw_gangs_data_shard(gangs, NULL, &n), "out_index is null");
  assert_refused(gw_gangs_data_shard(gangs, &i, NULL), "out_count is null");
  assert_refused(gw_gangs_shutdown(NULL, 0), "gangs is null");
  assert_refused(gw_gangs_abort(NULL, "x"), "gangs is null");
  assert_refused(gw_gangs_push_current(NULL), "gangs is null");
  assert_refused(gw_gangs_pop_current(NULL), "gangs is null");
  assert_refused(gw_gangs_current(NULL, NULL), "out_gangs is null");
  assert_refused(gw_gangs_set_default(NULL, gangs), "device is null");
  gw_gangs_release(gangs);
  gw_gangs_release(NULL);
  assert_null(gw_gangs_retain(NULL));
  gw_mesh_options_init(NULL, 48);
}

int main(void) {
  const struct CMUnitTest tests[] = {test_on_device(mesh_places_ranks_by_the_formula),
                                     test_on_device(bad_meshes_are_refused_on_every_rank),
                                     test_on_device(gangs_of_the_callers_gangs_are_a_mesh),
                                     test_on_device(meshes_split_dp_by_node),
                                     cmocka_unit_test(current_gangs_are_a_stack),
                                     test_on_device(nulls_are_refused)};
  return cmocka_run_group_tests_name("capi_mesh", tests, NULL, NULL);
}

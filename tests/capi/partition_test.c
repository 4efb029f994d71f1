#include "device_memory.h"

/* The description of a partition. */
static MAYBE_UNUSED gw_partition_info info_of(const gw_partition* partition) {
  gw_partition_info info;
  gw_partition_info_init(&info, sizeof info);
  gw_partition_describe(partition, &info);
  return info;
}

static void geometry(rank* me) {
  gw_partition *all = NULL, *some = NULL, *others = NULL, *both = NULL, *grid = NULL, *row = NULL;
  const int32_t chosen[] = {4, 1, 3}, more[] = {1, 0}, shape[] = {2, 3}, kept[] = {1};
  EXPECT_OK(gw_partition_create(me->gang, &all));
  gw_partition_info info = info_of(all);
  EXPECT(info.active == 1 && info.rank == me->index && info.size == 6 && info.ndim == 1);
  EXPECT(info.shape[0] == 6 && info.index[0] == me->index);
  EXPECT_OK(gw_partition_inclusive(all, chosen, 3, &some));
  info = info_of(some);
  EXPECT(info.size == 3);
  EXPECT(info.rank == (me->index == 4 ? 0 : me->index == 1 ? 1 : me->index == 3 ? 2 : -1));
  EXPECT(info.active == (info.rank >= 0));
  EXPECT_OK(gw_partition_inclusive(all, more, 2, &others));
  EXPECT_OK(gw_partition_union(some, others, &both));
  info = info_of(both);
  EXPECT(info.size == 4 && (me->index != 0 || info.rank == 3));
  EXPECT_OK(gw_partition_cartesian(all, shape, 2, &grid));
  info = info_of(grid);
  EXPECT(info.ndim == 2 && info.shape[0] == 2 && info.shape[1] == 3);
  EXPECT(info.index[0] == me->index / 3 && info.index[1] == me->index % 3);
  int32_t before = 7, after = 7;
  EXPECT_OK(gw_partition_neighbors(grid, 1, &before, &after));
  EXPECT(before == (me->index % 3 == 0 ? -1 : me->index - 1) &&
         after == (me->index % 3 == 2 ? -1 : me->index + 1));
  EXPECT_OK(gw_partition_subtopology(grid, kept, 1, &row));
  info = info_of(row);
  EXPECT(info.size == 3 && info.rank == me->index % 3 && info.ndim == 1);
  EXPECT(gw_partition_retain(row) == row);
  gw_partition_release(row);

  const int32_t twice[] = {1, 1}, outside[] = {6}, wrong[] = {2, 2};
  gw_partition* none = grid;
  EXPECT_REFUSED(gw_partition_inclusive(all, twice, 2, &none), "worker 1 is listed twice");
  EXPECT(none == NULL);
  EXPECT_REFUSED(gw_partition_inclusive(all, outside, 1, &none), "worker 6 is outside [0, 6)");
  EXPECT_REFUSED(gw_partition_inclusive(all, outside, 0, &none), "is empty");
  EXPECT_REFUSED(gw_partition_cartesian(all, wrong, 2, &none),
                 "has 4 places, but the partition has 6 workers");
  EXPECT_REFUSED(gw_partition_subtopology(grid, outside, 1, &none), "dim 6 is outside [0, 2)");
  EXPECT_REFUSED(gw_partition_neighbors(grid, 2, &before, &after), "dim 2 is outside [0, 2)");
  gw_partition* const made[] = {all, some, others, both, grid, row};
  for (size_t i = 0; i < sizeof made / sizeof *made; ++i) gw_partition_release(made[i]);
}
static void partitions_are_lists_of_workers_in_a_grid(void** state) {
  (void)state;
  run_ranks(6, geometry, NULL);
}

/* A number for each rank and element. */
static double value(int32_t rank, int64_t i) {
  return (double)((rank + 3) * (i + 1) * 7919 % 2003) / 1000 - 1;
}

static void all_gather(rank* me) {
  const int32_t shape[] = {2, 3}, axis = 1;
  const int64_t local[] = {7, 4};
  gw_partition *all = NULL, *grid = NULL;
  EXPECT_OK(gw_partition_create(me->gang, &all));
  EXPECT_OK(gw_partition_cartesian(all, shape, 2, &grid));
  gw_movement_options options;
  gw_movement_options_init(&options, sizeof options);
  EXPECT(options.backward_scale == 1 && options.axes == NULL && options.axes_keep == NULL);
  options.axes = &axis;
  options.axis_count = 1;
  options.backward_scale = 2;
  gw_movement* gather = NULL;
  EXPECT_OK(gw_movement_create(grid, NULL, GW_MOVEMENT_ALL_GATHER, &options, &gather));
  gw_partition_release(all);
  gw_partition_release(grid); /* the movement keeps its partitions */
  EXPECT(gw_movement_retain(gather) == gather);
  gw_movement_release(gather);

  double x[28], y[84];
  for (int i = 0; i < 28; ++i) x[i] = value(me->index, i);
  for (int i = 0; i < 84; ++i) y[i] = value(me->index + 10, i);
  gw_view in, dy, out;
  gw_tensor *joined = NULL, *back = NULL;
  EXPECT_OK(gw_view_set(&in, x, local, 2, GW_F64));
  EXPECT_STATUS(gw_movement_backward(gather, &in, NULL, &back), GW_E_INVALID_STATE, "no forward has run");
  EXPECT_STATUS(gw_movement_forward(gather, me->index == 1 ? NULL : &in, NULL, &joined),
                GW_E_INVALID_ARGUMENT, "input is null"); /* refused on all ranks */
  EXPECT_OK(gw_movement_forward(gather, &in, NULL, &joined));
  EXPECT_OK(gw_tensor_view(joined, &out));
  EXPECT(out.ndim == 2 && out.shape[0] == 7 && out.shape[1] == 12 && out.dtype == GW_F64);
  for (int64_t r = 0; r < 7; ++r)
    for (int64_t c = 0; c < 12; ++c)
      EXPECT(at(&out, r * 12 + c) == value(me->index / 3 * 3 + (int32_t)(c / 4), r * 4 + c % 4));

  EXPECT_OK(gw_view_set(&dy, y, out.shape, 2, GW_F64));
  for (int again = 0; again < 2; ++again) { /* a backward may run more than once */
    gw_tensor_release(back);
    EXPECT_OK(gw_movement_backward(gather, &dy, NULL, &back));
  }
  EXPECT_OK(gw_tensor_view(back, &out));
  EXPECT(out.ndim == 2 && out.shape[0] == 7 && out.shape[1] == 4);
  for (int64_t i = 0; i < 28; ++i) {
    double sum = 0;
    for (int32_t peer = 0; peer < 3; ++peer)
      sum += value(me->index / 3 * 3 + peer + 10, i / 4 * 12 + me->index % 3 * 4 + i % 4);
    const double error = at(&out, i) - 2 * sum;
    EXPECT(error < 1e-12 && error > -1e-12);
  }
  /* A duplicate has a forward of its own: another shape does not disturb the first one's backward. */
  gw_movement* other = NULL;
  gw_tensor *small = NULL, *again = NULL;
  const int64_t row[] = {1, 4};
  EXPECT_OK(gw_movement_duplicate(gather, &other));
  EXPECT_STATUS(gw_movement_backward(other, &dy, NULL, &again), GW_E_INVALID_STATE, "no forward has run");
  EXPECT_OK(gw_view_set(&in, x, row, 2, GW_F64));
  EXPECT_OK(gw_movement_forward(other, &in, NULL, &small));
  EXPECT_OK(gw_movement_backward(gather, &dy, NULL, &again));
  for (int64_t i = 0; i < 28; ++i) {
    gw_view twin;
    EXPECT_OK(gw_tensor_view(again, &twin));
    EXPECT(at(&out, i) == at(&twin, i));
  }
  gw_movement_release(other);
  gw_tensor_release(small);
  gw_tensor_release(again);
  EXPECT_STATUS(gw_movement_duplicate(NULL, &other), GW_E_INVALID_ARGUMENT, "movement is null");
  gw_tensor* refused = joined;
  EXPECT_OK(gw_view_set(&in, x, local, 2, GW_F64));
  EXPECT_REFUSED(gw_movement_backward(gather, &in, NULL, &refused), "the output was f64 [7, 12]");
  EXPECT(refused == NULL);
  gw_tensor_release(joined);
  gw_tensor_release(back);
  gw_movement_release(gather);
}
static void all_gather_joins_and_backward_sums(void** state) {
  (void)state;
  run_ranks(6, all_gather, NULL);
}

/* Runs every kind of movement once, from workers 0 and 1 to all four. Inactive workers pass nothing. */
static void each_kind(rank* me) {
  const int32_t two[] = {0, 1}, column[] = {2, 1}, square[] = {2, 2}, axis = 0;
  const int64_t one[] = {1, 2}, none[] = {0};
  gw_partition *all = NULL, *few = NULL, *source = NULL, *target = NULL;
  EXPECT_OK(gw_partition_create(me->gang, &all));
  EXPECT_OK(gw_partition_inclusive(all, two, 2, &few));
  EXPECT_OK(gw_partition_cartesian(few, column, 2, &source));
  EXPECT_OK(gw_partition_cartesian(all, square, 2, &target));
  double x[2] = {me->index, 10 + me->index};
  gw_view full, empty, out;
  EXPECT_OK(gw_view_set(&full, x, one, 2, GW_F64));
  EXPECT_OK(gw_view_set(&empty, NULL, none, 1, GW_F64));
  const struct {
    gw_movement_kind kind;
    /* Whether it is between the two partitions, and then from the larger one. */
    int joint, back;
    int64_t count[4];
    double first[4];
  } rows[] = {{GW_MOVEMENT_ALL_GATHER, 0, 0, {4, 4, 0, 0}, {0, 0, 0, 0}},
              {GW_MOVEMENT_REDUCE_SCATTER, 0, 0, {2, 0, 0, 0}, {1, 0, 0, 0}},
              {GW_MOVEMENT_ALL_SUM_REDUCE, 0, 0, {2, 2, 0, 0}, {1, 1, 0, 0}},
              {GW_MOVEMENT_BROADCAST, 1, 0, {2, 2, 2, 2}, {0, 0, 1, 1}},
              {GW_MOVEMENT_SUM_REDUCE, 1, 1, {2, 2, 0, 0}, {1, 5, 0, 0}},
              {GW_MOVEMENT_REPARTITION, 1, 0, {1, 1, 1, 1}, {0, 10, 1, 11}}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
    gw_movement_options options;
    gw_movement_options_init(&options, sizeof options);
    if (!rows[i].joint) {
      options.axes = &axis;
      options.axis_count = 1;
    }
    gw_movement* movement = NULL;
    gw_tensor *result = NULL, *gradient = NULL;
    const gw_partition* const from = rows[i].back ? target : source;
    const gw_partition* const to = rows[i].back ? source : target;
    EXPECT_OK(gw_movement_create(from, rows[i].joint ? to : NULL, rows[i].kind, &options, &movement));
    const gw_view* const input = rows[i].back || me->index < 2 ? &full : &empty;
    EXPECT_OK(gw_movement_forward(movement, input, NULL, &result));
    EXPECT_OK(gw_tensor_view(result, &out));
    const int64_t count = (int64_t)elements_of(&out);
    EXPECT(count == rows[i].count[me->index]);
    if (count > 0) EXPECT(at(&out, 0) == rows[i].first[me->index]);
    EXPECT_OK(gw_movement_backward(movement, &out, NULL, &gradient));
    EXPECT_OK(gw_tensor_view(gradient, &out));
    EXPECT(out.ndim == input->ndim && out.shape[0] == input->shape[0]);
    gw_tensor_release(gradient);
    gw_tensor_release(result);
    gw_movement_release(movement);
  }
  gw_movement* refused = (gw_movement*)me;
  EXPECT_REFUSED(gw_movement_create(source, NULL, GW_MOVEMENT_ALL_GATHER, NULL, &refused),
                 "neither axes nor axes_keep");
  EXPECT(refused == NULL);
  EXPECT_REFUSED(gw_movement_create(source, target, 6, NULL, &refused), "kind is 6, not 0 to 5");
  EXPECT_REFUSED(gw_movement_create(target, source, GW_MOVEMENT_BROADCAST, NULL, &refused), "dim -1 is 2");
  EXPECT_REFUSED(
      gw_movement_create(source, target, me->index == 1 ? -1 : GW_MOVEMENT_BROADCAST, NULL, &refused),
      "kind is -1");
  gw_partition* const made[] = {all, few, source, target};
  for (size_t i = 0; i < sizeof made / sizeof *made; ++i) gw_partition_release(made[i]);
}
static void each_kind_moves_what_it_says(void** state) {
  (void)state;
  run_ranks(4, each_kind, NULL);
}

/* An empty list of axes is an address and a count of 0; axes_keep that names every dim says the same. */
static void over_no_dims(rank* me) {
  const int32_t shape[] = {2, 2}, every[] = {0, 1};
  const int64_t local[] = {3, 2};
  gw_partition *all = NULL, *grid = NULL;
  EXPECT_OK(gw_partition_create(me->gang, &all));
  EXPECT_OK(gw_partition_cartesian(all, shape, 2, &grid));
  double x[6];
  for (int i = 0; i < 6; ++i) x[i] = value(me->index, i);
  for (int round = 0; round < 6; ++round) {
    const gw_movement_kind kinds[] = {GW_MOVEMENT_ALL_GATHER, GW_MOVEMENT_REDUCE_SCATTER,
                                      GW_MOVEMENT_ALL_SUM_REDUCE};
    gw_movement_options options;
    gw_movement_options_init(&options, sizeof options);
    if (round % 2 == 0) {
      options.axes = every;
      options.axis_count = 0;
    } else {
      options.axes_keep = every;
      options.keep_count = 2;
    }
    gw_movement* copy = NULL;
    gw_tensor *forward = NULL, *back = NULL;
    gw_view in, out;
    EXPECT_OK(gw_movement_create(grid, NULL, kinds[round / 2], &options, &copy));
    EXPECT_OK(gw_view_set(&in, x, local, 2, GW_F64));
    EXPECT_OK(gw_movement_forward(copy, &in, NULL, &forward));
    EXPECT_OK(gw_tensor_view(forward, &out));
    EXPECT(out.ndim == 2 && out.shape[0] == 3 && out.shape[1] == 2 && out.data != (void*)x);
    for (int i = 0; i < 6; ++i) EXPECT(at(&out, i) == x[i]);
    EXPECT_OK(gw_movement_backward(copy, &in, NULL, &back));
    EXPECT_OK(gw_tensor_view(back, &out));
    for (int i = 0; i < 6; ++i) EXPECT(at(&out, i) == x[i]);
    gw_tensor_release(forward);
    gw_tensor_release(back);
    gw_movement_release(copy);
  }
  gw_partition_release(all);
  gw_partition_release(grid);
}
static void movements_over_no_dims_copy(void** state) {
  (void)state;
  run_ranks(4, over_no_dims, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {test_on_device(partitions_are_lists_of_workers_in_a_grid),
                                     test_on_device(all_gather_joins_and_backward_sums),
                                     test_on_device(each_kind_moves_what_it_says),
                                     test_on_device(movements_over_no_dims_copy)};
  return cmocka_run_group_tests_name("capi_partition", tests, NULL, NULL);
}

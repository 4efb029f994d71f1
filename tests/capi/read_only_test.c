/* Whole values that processes share are read-only pages. A call refuses them as its output, where a write
 * would end the process. */
#include "testing.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kRanks = 2, kCount = 6 };

static gw_status make_group(gw_gangs* gangs, gw_shard_group** out_group) {
  gw_parameter_options p;
  gw_parameter_options_init(&p, sizeof p);
  p.name = "w";
  p.ndim = 1;
  p.dims[0] = kCount;
  return gw_shard_group_create(gangs, "g", &p, 1, NULL, 1, out_group);
}

/* Every call that would write to `shared`, over `me->gang`. Nothing is sent, so peers need not come. */
static void outputs_are_refused(rank* me, void* shared) {
  float x[kCount * kRanks] = {0};
  void* outputs[kRanks] = {x, shared};
  gw_gang* const g = me->gang;
  gw_work* work = NULL;
  const char* const said = "the output is read-only memory";
  EXPECT_REFUSED(gw_gang_all_reduce(g, shared, shared, kCount, GW_F32, GW_SUM, NULL), said);
  EXPECT_REFUSED(gw_gang_all_reduce(g, x, shared, kCount, GW_F32, GW_SUM, NULL), "all_reduce");
  EXPECT_REFUSED(gw_gang_all_reduce_async(g, x, shared, kCount, GW_F32, GW_SUM, NULL, &work), said);
  EXPECT_REFUSED(gw_gang_all_gather(g, x, shared, kCount / kRanks, GW_F32, NULL), said);
  EXPECT_REFUSED(gw_gang_all_gather_list(g, x, outputs, kCount, GW_F32, NULL), said);
  EXPECT_REFUSED(gw_gang_reduce_scatter(g, x, shared, kCount, GW_F32, GW_SUM, NULL), said);
  EXPECT_REFUSED(gw_gang_broadcast(g, shared, shared, kCount, GW_F32, 1 - me->index, NULL), said);
  EXPECT_REFUSED(gw_gang_reduce(g, x, shared, kCount, GW_F32, GW_SUM, me->index, NULL), said);
  EXPECT_REFUSED(gw_gang_gather(g, x, shared, kCount / kRanks, GW_F32, me->index, NULL), said);
  EXPECT_REFUSED(gw_gang_scatter(g, x, shared, kCount, GW_F32, 1 - me->index, NULL), said);
  EXPECT_REFUSED(gw_gang_all_to_all(g, x, shared, kCount / kRanks, GW_F32, NULL), said);
  EXPECT_REFUSED(gw_gang_recv(g, shared, kCount, GW_F32, 1 - me->index, NULL), said);
  /* Its last element alone is refused too. */
  EXPECT_REFUSED(gw_gang_recv(g, (float*)shared + kCount - 1, 1, GW_F32, 1 - me->index, NULL), said);
  EXPECT(work == NULL);
}

static void full_values(rank* me) {
  gw_gangs* gangs = NULL;
  gw_gang *other = NULL, *const root = me->gang;
  gw_shard_group* g = NULL;
  gw_view full, into;
  gw_tensor* tensor = NULL;
  float x[kCount] = {0}, sum[kCount];
  const int64_t count = kCount;
  EXPECT_OK(gw_gangs_create(root, NULL, &gangs));
  EXPECT_OK(make_group(gangs, &g));
  EXPECT_OK(gw_shard_group_unshard(g, NULL, NULL));
  EXPECT_OK(gw_shard_group_view(g, 0, GW_PART_FULL_VALUE, &full));
  EXPECT_OK(gw_shard_group_tensor(g, 0, GW_PART_FULL_VALUE, &tensor));
  EXPECT(gw_tensor_is_read_only(tensor) == 1);
  gw_tensor_release(tensor);
  outputs_are_refused(me, full.data);
  /* A gang that has nothing to do with the group refuses them too. */
  EXPECT_OK(gw_gang_create_fake(me->index, kRanks, NULL, &other));
  me->gang = other;
  outputs_are_refused(me, full.data);
  me->gang = root;
  gw_gang_release(other);
  if (me->failure[0] != '\0') return;
  EXPECT_OK(gw_shard_group_reshard(g, NULL));
  gw_view_set(&into, full.data, &count, 1, GW_F32); /* the pages still exist */
  EXPECT_REFUSED(gw_shard_group_unshard(g, &into, NULL), "into[0] is an output, but read-only memory");
  /* As inputs they are allowed, and nothing is broken. */
  EXPECT_OK(gw_shard_group_unshard(g, NULL, NULL));
  EXPECT_OK(gw_shard_group_view(g, 0, GW_PART_FULL_VALUE, &full));
  EXPECT_OK(gw_gang_all_reduce(root, full.data, sum, kCount, GW_F32, GW_SUM, NULL));
  for (int i = 0; i < kCount; ++i) EXPECT(sum[i] == kRanks * ((const float*)full.data)[i]);
  void* const place = me->index == 0 ? full.data : x; /* the root of a broadcast writes nothing in place */
  EXPECT_OK(gw_gang_broadcast(root, place, place, kCount, GW_F32, 0, NULL));
  for (int i = 0; i < kCount; ++i) EXPECT(((float*)place)[i] == ((const float*)full.data)[i]);
  EXPECT_OK(gw_gang_all_reduce(root, x, x, kCount, GW_F32, GW_SUM, NULL));
  gw_shard_group_release(g);
  gw_gangs_release(gangs);
  EXPECT_OK(gw_gang_shutdown(root, 60000));
}

static void rank_process(rank* me, const char* folder) {
  gw_gang_options o;
  gw_gang_options_init(&o, sizeof o);
  o.rank = me->index;
  o.size = kRanks;
  o.timeout_ms = 60000;
  o.threads = 1;
  o.arena_bytes = (uint64_t)1 << 30;
  EXPECT_OK(gw_store_create_file(folder, &o.store));
  EXPECT_OK(gw_gang_create(&o, &me->gang));
  gw_store_release(o.store);
  full_values(me);
}

static void a_full_value_is_refused_as_an_output(void** state) {
  (void)state;
  char folder[] = "/tmp/gangway-read-only-XXXXXX", command[100];
  pid_t pids[kRanks];
  assert_non_null(mkdtemp(folder));
  rank* const ranks =
      mmap(NULL, kRanks * sizeof(rank), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_true(ranks != MAP_FAILED);
  for (int32_t r = 0; r < kRanks; ++r) {
    ranks[r].index = r;
    ranks[r].size = kRanks;
    pids[r] = fork();
    assert_true(pids[r] >= 0);
    if (pids[r] == 0) {
      alarm(100);
      rank_process(&ranks[r], folder);
      _exit(0);
    }
  }
  for (int32_t r = 0; r < kRanks; ++r) {
    int status = -1;
    assert_int_equal(waitpid(pids[r], &status, 0), pids[r]);
    if (status != 0) fail_msg("rank %d ended with status %d: %s", r, status, ranks[r].failure);
  }
  for (int32_t r = 0; r < kRanks; ++r)
    if (ranks[r].failure[0] != '\0') fail_msg("%s", ranks[r].failure);
  munmap(ranks, kRanks * sizeof(rank));
  snprintf(command, sizeof command, "rm -r %s", folder);
  assert_int_equal(system(command), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_full_value_is_refused_as_an_output)};
  return cmocka_run_group_tests_name("capi_read_only", tests, NULL, NULL);
}

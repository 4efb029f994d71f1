/* Ranks that are processes, from C. They are forked before any gang is made, and they meet in a file
 * store. */
#include "testing.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kRanks = 3, kVictim = 1 };

/* What a rank reports to the test, in memory that forks share. */
typedef struct report {
  volatile int32_t stage; /* 1: all ranks have met; 2: the rank has reported */
  volatile int32_t go_on; /* the test sets it */
  int32_t status, peer, rank, async;
  double sum;
  char text[600];
} report;

/* A survivor stays until all have reported: a rank that has ended counts as lost for the others. */
static int survivor(gw_gang* gang, report* mine) {
  const int32_t survivors[2] = {0, 2};
  gw_gang* rest = NULL;
  float x = 1, y = 0;
  mine->status = GW_OK;
  while (mine->status == GW_OK) mine->status = gw_gang_all_reduce(gang, &x, &y, 1, GW_F32, GW_SUM, NULL);
  const gw_error_info info = last_error();
  mine->peer = info.peer;
  mine->rank = info.rank;
  snprintf(mine->text, sizeof mine->text, "%s", info.message);
  mine->async = gw_gang_async_error(gang);
  if (gw_gang_shrink(gang, survivors, 2, &rest) != GW_OK) return 3;
  if (gw_gang_all_sum(rest, 1, &mine->sum) != GW_OK) return 4;
  mine->stage = 2;
  while (!mine->go_on) usleep(500);
  if (gw_gang_shutdown(rest, 60000) != GW_OK) return 5;
  gw_gang_release(rest);
  gw_gang_release(gang);
  return 0;
}

static int rank_of(int32_t index, const char* folder, report* mine, int exits) {
  gw_gang_options o;
  gw_gang_options_init(&o, sizeof o);
  o.rank = index;
  o.size = kRanks;
  o.timeout_ms = 60000;
  o.threads = 1;
  o.arena_bytes = (uint64_t)1 << 30;
  gw_gang* gang = NULL;
  if (gw_store_create_file(folder, &o.store) != GW_OK) return 1;
  if (gw_gang_create(&o, &gang) != GW_OK || gw_gang_barrier(gang, NULL) != GW_OK) {
    snprintf(mine->text, sizeof mine->text, "%s", last_error().message);
    return 2;
  }
  gw_store_release(o.store);
  mine->stage = 1;
  if (index != kVictim) return survivor(gang, mine);
  if (exits) return 9;
  for (;;) pause();
}

static void loses_a_rank(int exits, const char* how) {
  char folder[] = "/tmp/gangway-ranks-XXXXXX";
  pid_t pids[kRanks];
  int status = 0;
  assert_non_null(mkdtemp(folder));
  report* const reports =
      mmap(NULL, kRanks * sizeof(report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_true(reports != MAP_FAILED);
  for (int32_t r = 0; r < kRanks; ++r) {
    pids[r] = fork();
    assert_true(pids[r] >= 0);
    if (pids[r] == 0) {
      alarm(100);
      _exit(rank_of(r, folder, &reports[r], exits));
    }
  }
  if (!exits) {
    while (reports[kVictim].stage != 1) usleep(500);
    kill(pids[kVictim], SIGKILL);
  }
  for (int32_t r = 0; r < kRanks; ++r)
    while (r != kVictim && reports[r].stage != 2 && waitpid(pids[r], &status, WNOHANG) == 0) usleep(500);
  for (int32_t r = 0; r < kRanks; ++r) reports[r].go_on = 1;
  for (int32_t r = 0; r < kRanks; ++r) {
    if (r == kVictim) continue;
    if (waitpid(pids[r], &status, 0) != pids[r] || status != 0)
      fail_msg("rank %d ended with %d: %s", r, status, reports[r].text);
    assert_int_equal(reports[r].status, GW_E_PEER_LOST);
    assert_int_equal(reports[r].async, GW_E_PEER_LOST);
    assert_int_equal(reports[r].peer, kVictim);
    assert_int_equal(reports[r].rank, r);
    assert_non_null(strstr(reports[r].text, "gang.all_reduce #"));
    assert_non_null(strstr(reports[r].text, ": rank 1 (host "));
    if (strstr(reports[r].text, how) == NULL) fail_msg("\"%s\" is not in \"%s\"", how, reports[r].text);
    assert_true(reports[r].sum == 2);
  }
  waitpid(pids[kVictim], &status, 0);
  munmap(reports, kRanks * sizeof(report));
  char command[100];
  snprintf(command, sizeof command, "rm -r %s", folder);
  assert_int_equal(system(command), 0);
}

static void a_killed_rank_is_lost_to_every_survivor_and_they_go_on(void** state) {
  (void)state;
  loses_a_rank(0, ", killed by signal 9; ranks 0, 2 are alive");
}

static void a_rank_that_exits_without_shutdown_is_lost_too(void** state) {
  (void)state;
  loses_a_rank(1, "exit code 9; ranks 0, 2 are alive");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_killed_rank_is_lost_to_every_survivor_and_they_go_on),
                                     cmocka_unit_test(a_rank_that_exits_without_shutdown_is_lost_too)};
  return cmocka_run_group_tests_name("capi_gang_process", tests, NULL, NULL);
}

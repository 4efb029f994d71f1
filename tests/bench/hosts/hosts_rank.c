/* A rank of ours for hosts.py: all-reduces over the gang that the environment describes. Argument: socket path. */
#include "sums.h"

#include <gangway/gangway.h>

static void check(gw_status status) {
  if (status == GW_OK) return;
  gw_error_info e;
  gw_error_info_init(&e, sizeof e);
  gw_last_error(&e);
  fprintf(stderr, "%s\n", e.message);
  exit(1);
}

static void all_reduce(void *gang, float *x, size_t count) {
  check(gw_gang_all_reduce(gang, x, x, count, GW_F32, GW_SUM, NULL));
}

static void barrier(void *gang) { check(gw_gang_barrier(gang, NULL)); }

int main(int argc, char **argv) {
  if (argc != 2) return 2;
  gw_gang *gang = NULL;
  check(gw_gang_create(NULL, &gang));
  const bench_sums sums = {gang, all_reduce, barrier};
  bench_serve_sums(argv[1], gw_gang_rank(gang), gw_gang_engine(gang), &sums);
  check(gw_gang_shutdown(gang, -1));
  gw_gang_release(gang);
  return 0;
}

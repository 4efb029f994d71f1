/* A rank of ours for hosts.py: all-reduces over the gang that the environment describes. Argument: socket path.
 * "sum KIB REPEATS" -> seconds and processor seconds a call. */
#include "../common/rank.h"

#include <gangway/gangway.h>

static void check(gw_status status) {
  if (status == GW_OK) return;
  gw_error_info e;
  gw_error_info_init(&e, sizeof e);
  gw_last_error(&e);
  fprintf(stderr, "%s\n", e.message);
  exit(1);
}

static void measure(bench_driver *driver, gw_gang *gang, size_t kib, int repeats) {
  const size_t count = kib * 1024 / sizeof(float);
  float *x = malloc(count * sizeof(float));
  bench_fill(x, count, (unsigned)gw_gang_rank(gang) + 1);
  double start = 0, cpu = 0;
  for (int i = -1; i < repeats; ++i) {
    check(gw_gang_all_reduce(gang, x, x, count, GW_F32, GW_MEAN, NULL));
    if (i >= 0) continue;
    check(gw_gang_barrier(gang, NULL));
    start = bench_seconds();
    cpu = bench_cpu_seconds(1);
  }
  const double wall = bench_seconds() - start, spent = bench_cpu_seconds(1) - cpu;
  bench_reply(driver, "%.9f %.9f", wall / repeats, spent / repeats);
  free(x);
}

int main(int argc, char **argv) {
  if (argc != 2) return 2;
  gw_gang *gang = NULL;
  check(gw_gang_create(NULL, &gang));
  char line[256];
  bench_driver driver = bench_connect(argv[1], gw_gang_rank(gang), gw_gang_engine(gang));
  while (bench_command(&driver, line, sizeof line)) {
    size_t kib = 0;
    int repeats = 0;
    if (sscanf(line, "sum %zu %d", &kib, &repeats) == 2)
      measure(&driver, gang, kib, repeats);
    else
      bench_reply(&driver, "error: %s", line);
  }
  check(gw_gang_shutdown(gang, -1));
  gw_gang_release(gang);
  return 0;
}

/* What a rank does for hosts.py, over any library: "sum KIB REPEATS" -> seconds and processor seconds a call. */
#ifndef BENCH_SUMS_H
#define BENCH_SUMS_H

#include "../common/rank.h"

typedef struct bench_sums {
  void *gang;
  void (*all_reduce)(void *gang, float *x, size_t count); /* in place */
  void (*barrier)(void *gang);
} bench_sums;

static inline void bench_measure_sum(bench_driver *driver, const bench_sums *sums, int rank, size_t kib,
                                     int repeats) {
  const size_t count = kib * 1024 / sizeof(float);
  float *x = malloc(count * sizeof(float));
  bench_fill(x, count, (unsigned)rank + 1);
  sums->all_reduce(sums->gang, x, count);
  sums->barrier(sums->gang);
  const double start = bench_seconds(), cpu = bench_cpu_seconds(1);
  for (int i = 0; i < repeats; ++i) sums->all_reduce(sums->gang, x, count);
  const double wall = bench_seconds() - start, spent = bench_cpu_seconds(1) - cpu;
  bench_reply(driver, "%.9f %.9f", wall / repeats, spent / repeats);
  free(x);
}

/* Answers the driver until it is done. */
static inline void bench_serve_sums(const char *path, int rank, const char *text, const bench_sums *sums) {
  char line[256];
  bench_driver driver = bench_connect(path, rank, text);
  while (bench_command(&driver, line, sizeof line)) {
    size_t kib = 0;
    int repeats = 0;
    if (sscanf(line, "sum %zu %d", &kib, &repeats) == 2)
      bench_measure_sum(&driver, sums, rank, kib, repeats);
    else
      bench_reply(&driver, "error: %s", line);
  }
}

#endif

/* A rank of an MPI for hosts.py: all-reduces. Argument: socket path. "sum KIB REPEATS" -> seconds and processor
 * seconds a call. Built with mpicc. */
#include "../common/rank.h"

#include <mpi.h>

static void measure(bench_driver *driver, int rank, size_t kib, int repeats) {
  const size_t count = kib * 1024 / sizeof(float);
  float *x = malloc(count * sizeof(float));
  bench_fill(x, count, (unsigned)rank + 1);
  double start = 0, cpu = 0;
  for (int i = -1; i < repeats; ++i) {
    MPI_Allreduce(MPI_IN_PLACE, x, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    if (i >= 0) continue;
    MPI_Barrier(MPI_COMM_WORLD);
    start = bench_seconds();
    cpu = bench_cpu_seconds(1);
  }
  const double wall = bench_seconds() - start, spent = bench_cpu_seconds(1) - cpu;
  bench_reply(driver, "%.9f %.9f", wall / repeats, spent / repeats);
  free(x);
}

int main(int argc, char **argv) {
  if (argc != 2) return 2;
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  char line[256];
  bench_driver driver = bench_connect(argv[1], rank, "MPI");
  while (bench_command(&driver, line, sizeof line)) {
    size_t kib = 0;
    int repeats = 0;
    if (sscanf(line, "sum %zu %d", &kib, &repeats) == 2)
      measure(&driver, rank, kib, repeats);
    else
      bench_reply(&driver, "error: %s", line);
  }
  MPI_Finalize();
  return 0;
}

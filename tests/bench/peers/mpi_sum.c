/* A rank of an MPI for hosts.py: all-reduces. Argument: socket path. Built with mpicc. */
#include "../hosts/sums.h"

#include <mpi.h>

static void all_reduce(void *gang, float *x, size_t count) {
  (void)gang;
  MPI_Allreduce(MPI_IN_PLACE, x, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void barrier(void *gang) {
  (void)gang;
  MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv) {
  if (argc != 2) return 2;
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const bench_sums sums = {NULL, all_reduce, barrier};
  bench_serve_sums(argv[1], rank, "MPI", &sums);
  MPI_Finalize();
  return 0;
}

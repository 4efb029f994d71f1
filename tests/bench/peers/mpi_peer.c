/* Collectives of an MPI: built once with each mpicc. Arguments: socket path, 1 to pin each rank to a core. */
#include "../common/rank.h"

#include <mpi.h>

#include "../collectives/job.h"

static void overlap(const job *j, float *out, int whole) {
  MPI_Request request = MPI_REQUEST_NULL;
  if (j->bytes > 0) MPI_Iallreduce(MPI_IN_PLACE, out, whole, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &request);
  job_compute(j->work);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
}

/* The i-th call of a measurement. */
static void call(const job *j, float *in, float *out, int rank, int size, long i) {
  const int whole = (int)(j->bytes / sizeof(float)), part = whole / size;
  switch (j->op) {
    case JOB_BARRIER: MPI_Barrier(MPI_COMM_WORLD); return;
    case JOB_ALL_REDUCE:
      MPI_Allreduce(j->in_place ? MPI_IN_PLACE : in, out, whole, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      return;
    case JOB_ALL_GATHER:
      if (j->in_place)
        MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, out, part, MPI_FLOAT, MPI_COMM_WORLD);
      else
        MPI_Allgather(in, part, MPI_FLOAT, out, part, MPI_FLOAT, MPI_COMM_WORLD);
      return;
    case JOB_REDUCE_SCATTER:
      MPI_Reduce_scatter_block(j->in_place ? MPI_IN_PLACE : in, out, part, MPI_FLOAT, MPI_SUM,
                               MPI_COMM_WORLD);
      return;
    case JOB_BROADCAST: MPI_Bcast(out, whole, MPI_FLOAT, 0, MPI_COMM_WORLD); return;
    case JOB_ALL_TO_ALL: MPI_Alltoall(in, part, MPI_FLOAT, out, part, MPI_FLOAT, MPI_COMM_WORLD); return;
    case JOB_EXCHANGE:
      MPI_Sendrecv(in, whole, MPI_FLOAT, (rank + 1) % size, 0, out, whole, MPI_FLOAT,
                   (rank + size - 1) % size, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      return;
    case JOB_SEND_RECV:
      if (rank > 1) return;
      if (job_sends(rank, i))
        MPI_Send(in, whole, MPI_FLOAT, 1 - rank, 0, MPI_COMM_WORLD);
      else
        MPI_Recv(out, whole, MPI_FLOAT, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      return;
    case JOB_OVERLAP: overlap(j, out, whole); return;
    case JOB_NONE: return;
  }
}

int main(int argc, char **argv) {
  int rank = 0, size = 1, length = 0;
  char version[MPI_MAX_LIBRARY_VERSION_STRING];
  if (argc < 3) return 2;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (atoi(argv[2])) bench_pin(rank, size);
  float *in = aligned_alloc(4096, job_most_bytes()), *out = aligned_alloc(4096, job_most_bytes());
  bench_fill(in, job_most_bytes() / sizeof(float), (unsigned)rank + 1);
  bench_fill(out, job_most_bytes() / sizeof(float), (unsigned)rank + 1);
  MPI_Get_library_version(version, &length);
  version[strcspn(version, ",\n")] = 0;
  if (strncmp(version, "MPICH", 5) == 0)
    for (char *c = version; *c; ++c)
      if (*c == '\t') *c = ' ';
  bench_driver driver = bench_connect(argv[1], rank, version);
  char line[256];
  job j;
  while (bench_command(&driver, line, sizeof line)) {
    if (!job_read(line, &j)) {
      bench_reply(&driver, "error: %s", line);
      continue;
    }
    for (long i = 0; i < j.warmup; ++i) call(&j, in, out, rank, size, i);
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = bench_seconds();
    for (long i = 0; i < j.calls; ++i) call(&j, in, out, rank, size, i);
    bench_reply(&driver, "%.12g", (bench_seconds() - start) / (double)j.calls);
  }
  MPI_Finalize();
  return 0;
}

/* A rank of ours, through the C ABI. Arguments: socket path, 1 to pin, engine. Replies "SECONDS MOVED STAGED", bytes a
 * call. */
#include "../common/rank.h"

#include <gangway/gangway.h>

#include "job.h"

typedef struct buffers {
  float *in, *out;
} buffers;

static gw_status overlap(gw_gang *gang, const job *j, const buffers *b) {
  gw_work *work = NULL;
  gw_status status = GW_OK;
  if (j->bytes > 0)
    status =
        gw_gang_all_reduce_async(gang, b->out, b->out, j->bytes / sizeof(float), GW_F32, GW_SUM, NULL, &work);
  job_compute(j->work);
  if (work != NULL) status = gw_work_wait(work, -1);
  gw_work_release(work);
  return status;
}

/* Around the ring, as one launch. */
static gw_status exchange(gw_gang *gang, const buffers *b, size_t count) {
  const int rank = gw_gang_rank(gang), size = gw_gang_size(gang);
  gw_collective both[2];
  for (int i = 0; i < 2; ++i) {
    gw_collective_init(&both[i], sizeof both[i]);
    both[i].count = count;
    both[i].dtype = GW_F32;
  }
  both[0].op = GW_SEND;
  both[0].input = b->in;
  both[0].peer = (rank + 1) % size;
  both[1].op = GW_RECV;
  both[1].output = b->out;
  both[1].peer = (rank + size - 1) % size;
  return gw_gang_run_batch(gang, both, 2, NULL, NULL);
}

/* The i-th call of a measurement. */
static gw_status call(gw_gang *gang, const job *j, const buffers *b, long i) {
  const size_t rank = (size_t)gw_gang_rank(gang), size = (size_t)gw_gang_size(gang);
  const size_t whole = j->bytes / sizeof(float), part = whole / size;
  switch (j->op) {
    case JOB_BARRIER: return gw_gang_barrier(gang, NULL);
    case JOB_ALL_REDUCE:
      return gw_gang_all_reduce(gang, j->in_place ? b->out : b->in, b->out, whole, GW_F32, GW_SUM, NULL);
    case JOB_ALL_GATHER:
      return gw_gang_all_gather(gang, j->in_place ? b->out + rank * part : b->in, b->out, part, GW_F32, NULL);
    case JOB_REDUCE_SCATTER:
      return gw_gang_reduce_scatter(gang, b->in, j->in_place ? b->in + rank * part : b->out, part, GW_F32,
                                    GW_SUM, NULL);
    case JOB_BROADCAST: return gw_gang_broadcast(gang, b->out, b->out, whole, GW_F32, 0, NULL);
    case JOB_ALL_TO_ALL: return gw_gang_all_to_all(gang, b->in, b->out, part, GW_F32, NULL);
    case JOB_EXCHANGE: return exchange(gang, b, whole);
    case JOB_SEND_RECV:
      if (rank > 1) return GW_OK;
      if (job_sends((int)rank, i)) return gw_gang_send(gang, b->in, whole, GW_F32, 1 - (int)rank, NULL);
      return gw_gang_recv(gang, b->out, whole, GW_F32, 1 - (int)rank, NULL);
    case JOB_OVERLAP: return overlap(gang, j, b);
    case JOB_NONE: break;
  }
  return GW_E_INTERNAL;
}

static const char *failure(void) {
  gw_error_info e;
  gw_error_info_init(&e, sizeof e);
  gw_last_error(&e);
  return e.message;
}

static void measure(bench_driver *driver, gw_gang *gang, const job *j, const buffers *b) {
  gw_gang_traffic before, after;
  gw_gang_traffic_init(&before, sizeof before);
  gw_gang_traffic_init(&after, sizeof after);
  gw_status status = GW_OK;
  for (long i = 0; i < j->warmup && status == GW_OK; ++i) status = call(gang, j, b, i);
  if (status == GW_OK) status = gw_gang_barrier(gang, NULL);
  gw_gang_get_traffic(gang, &before);
  const double start = bench_seconds();
  for (long i = 0; i < j->calls && status == GW_OK; ++i) status = call(gang, j, b, i);
  const double seconds = (bench_seconds() - start) / (double)j->calls;
  gw_gang_get_traffic(gang, &after);
  if (status != GW_OK)
    bench_reply(driver, "error: %s", failure());
  else
    bench_reply(driver, "%.12g %.0f %.0f", seconds,
                (double)(after.bytes_moved - before.bytes_moved) / (double)j->calls,
                (double)(after.bytes_staged - before.bytes_staged) / (double)j->calls);
}

int main(int argc, char **argv) {
  if (argc < 4) return 2;
  gw_gang *gang = NULL;
  gw_gang_options options;
  gw_gang_options_init(&options, sizeof options);
  options.engine = argv[3];
  if (gw_gang_create(&options, &gang) != GW_OK) return fprintf(stderr, "%s\n", failure()), 1;
  const int rank = gw_gang_rank(gang);
  if (atoi(argv[2])) bench_pin(rank, gw_gang_size(gang));
  buffers arena = {NULL, NULL},
          plain = {aligned_alloc(4096, job_most_bytes()), aligned_alloc(4096, job_most_bytes())};
  void *memory[2] = {NULL, NULL};
  for (int i = 0; i < 2; ++i)
    if (gw_gang_alloc(gang, job_most_bytes(), &memory[i]) != GW_OK)
      return fprintf(stderr, "%s\n", failure()), 1;
  arena.in = memory[0];
  arena.out = memory[1];
  float *all[4] = {arena.in, arena.out, plain.in, plain.out};
  for (int i = 0; i < 4; ++i) bench_fill(all[i], job_most_bytes() / sizeof(float), (unsigned)rank + 1);
  int32_t major = 0, minor = 0, patch = 0;
  gw_version(&major, &minor, &patch);
  char text[128], line[256];
  snprintf(text, sizeof text, "gangway %d.%d.%d, engine %s", major, minor, patch, gw_gang_engine(gang));
  bench_driver driver = bench_connect(argv[1], rank, text);
  job j;
  while (bench_command(&driver, line, sizeof line)) {
    if (job_read(line, &j))
      measure(&driver, gang, &j, j.arena ? &arena : &plain);
    else
      bench_reply(&driver, "error: %s", line);
  }
  gw_gang_free(gang, memory[0]);
  gw_gang_free(gang, memory[1]);
  free(plain.in);
  free(plain.out);
  gw_gang_shutdown(gang, -1);
  gw_gang_release(gang);
  return 0;
}

/* One measurement as every side understands it: "run OP BYTES IN_PLACE ARENA WARMUP CALLS WORK" -> "SECONDS",
 * seconds a call on this rank. BYTES: of the whole tensor (all_gather: of the output, reduce_scatter: of the
 * input). exchange: each rank sends to the next one and receives from the one before. send_recv: ranks 0 and 1 send to each other in turn, one message a call. overlap: an asynchronous
 * all_reduce (none for BYTES 0) during which the caller computes WORK units, and the wait for it. */
#ifndef BENCH_JOB_H
#define BENCH_JOB_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum job_op {
  JOB_BARRIER,
  JOB_ALL_REDUCE,
  JOB_ALL_GATHER,
  JOB_REDUCE_SCATTER,
  JOB_BROADCAST,
  JOB_ALL_TO_ALL,
  JOB_EXCHANGE,
  JOB_SEND_RECV,
  JOB_OVERLAP,
  JOB_NONE
} job_op;

static const char* const job_op_names[] = {"barrier",        "all_reduce", "all_gather",
                                           "reduce_scatter", "broadcast",  "all_to_all",
                                           "exchange",       "send_recv",  "overlap"};

typedef struct job {
  job_op op;
  size_t bytes;
  int in_place;
  int arena; /* gangway only: memory that peers reach */
  long warmup, calls, work;
} job;

/* The driver sets it for all ranks; where they outnumber cores it is small. */
#define JOB_MOST_BYTES_VARIABLE "GANGWAY_BENCH_MOST_BYTES"
static inline size_t job_most_bytes(void) {
  const char* text = getenv(JOB_MOST_BYTES_VARIABLE);
  return text != NULL ? (size_t)strtoull(text, NULL, 10) : (size_t)64 << 20;
}

static inline int job_read(const char* line, job* out) {
  char op[32];
  if (sscanf(line, "run %31s %zu %d %d %ld %ld %ld", op, &out->bytes, &out->in_place, &out->arena,
             &out->warmup, &out->calls, &out->work) != 7)
    return 0;
  out->op = JOB_NONE;
  for (int i = 0; i < JOB_NONE; ++i)
    if (strcmp(op, job_op_names[i]) == 0) out->op = (job_op)i;
  return out->op != JOB_NONE && out->bytes <= job_most_bytes() && out->calls > 0;
}

/* Whether `rank` is the one that sends in call `i` of send_recv; others than 0 and 1 have no part. */
static inline int job_sends(int rank, long i) { return (i + rank) % 2 == 0; }

/* Arithmetic in registers: about a microsecond a unit. */
static inline void job_compute(long units) {
  static volatile float sink;
  float x[32];
  for (int k = 0; k < 32; ++k) x[k] = (float)k;
  for (long u = 0; u < units; ++u)
    for (int i = 0; i < 256; ++i)
      for (int k = 0; k < 32; ++k) x[k] = x[k] * 0.999f + 0.5f;
  for (int k = 1; k < 32; ++k) x[0] += x[k];
  sink = x[0];
  (void)sink;
}

#endif

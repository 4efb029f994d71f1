/* One measurement as every side understands it: "run OP BYTES IN_PLACE ARENA WARMUP CALLS" -> "SECONDS",
 * seconds a call on this rank. BYTES: of the whole tensor (all_gather: of the output, reduce_scatter: of the
 * input). */
#ifndef BENCH_JOB_H
#define BENCH_JOB_H

#include <stdio.h>
#include <string.h>

typedef enum job_op {
  JOB_BARRIER,
  JOB_ALL_REDUCE,
  JOB_ALL_GATHER,
  JOB_REDUCE_SCATTER,
  JOB_BROADCAST,
  JOB_NONE
} job_op;

static const char* const job_op_names[] = {"barrier", "all_reduce", "all_gather", "reduce_scatter",
                                           "broadcast"};

typedef struct job {
  job_op op;
  size_t bytes;
  int in_place;
  int arena; /* gangway only: memory that peers reach */
  long warmup, calls;
} job;

#define JOB_MOST_BYTES ((size_t)64 << 20)

static inline int job_read(const char* line, job* out) {
  char op[32];
  if (sscanf(line, "run %31s %zu %d %d %ld %ld", op, &out->bytes, &out->in_place, &out->arena, &out->warmup,
             &out->calls) != 6)
    return 0;
  out->op = JOB_NONE;
  for (int i = 0; i < JOB_NONE; ++i)
    if (strcmp(op, job_op_names[i]) == 0) out->op = (job_op)i;
  return out->op != JOB_NONE && out->bytes <= JOB_MOST_BYTES && out->calls > 0;
}

#endif

/* What rank.c makes its calls and its file of results by. */
#include <gangway/gangway.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static FILE *out;
static int me, size;

static void need(gw_status status, const char *what) {
  if (status == GW_OK) return;
  gw_error_info e;
  gw_error_info_init(&e, sizeof e);
  gw_last_error(&e);
  fprintf(stderr, "rank %d: %s: %s: %s\n", me, what, gw_status_name(e.code), e.message);
  exit(1);
}

static void put(const char *name, const void *bytes, size_t count) {
  fprintf(out, "%s ", name);
  for (size_t i = 0; i < count; ++i) fprintf(out, "%02x", ((const unsigned char *)bytes)[i]);
  fputc('\n', out);
}

/* What a rank brings: whole numbers of either sign, divided where they are floats, so that sums round. */
static long whole(long i, int rank, int salt) {
  return ((i + 1) * 7919 + rank * 104729L + salt * 1299709L) % 20011 - 10005;
}

static void fill(void *data, gw_dtype dtype, size_t count, int salt) {
  for (size_t i = 0; i < count; ++i) {
    const long n = whole((long)i, me, salt);
    if (dtype == GW_F32) ((float *)data)[i] = (float)n / 1000.0f;
    if (dtype == GW_F64) ((double *)data)[i] = (double)n / 1000.0;
    if (dtype == GW_I32) ((int32_t *)data)[i] = (int32_t)n;
    if (dtype == GW_I64) ((int64_t *)data)[i] = n;
  }
}

static gw_collective record(gw_op op, const void *input, void *output, size_t count) {
  gw_collective r;
  gw_collective_init(&r, sizeof r);
  r.op = op;
  r.input = input;
  r.output = output;
  r.count = count;
  r.dtype = GW_F32;
  return r;
}

static void wait_and_release(gw_work *work, const char *name) {
  need(gw_work_wait(work, -1), name);
  gw_work_release(work);
}

static void wait_for_record(gw_gang *gang, const char *name, const gw_collective *r) {
  gw_work *work = NULL;
  need(gw_gang_run(gang, r, NULL, &work), name);
  wait_and_release(work, name);
}

/* Both forms of a collective; `bytes` of its output are results (none where only the root has one). */
static void both(gw_gang *gang, const char *name, const gw_collective *r, size_t bytes) {
  char later[64];
  snprintf(later, sizeof later, "%s later", name);
  memset(r->output, 0, bytes);
  need(gw_gang_run(gang, r, NULL, NULL), name);
  put(name, r->output, bytes);
  memset(r->output, 0, bytes);
  wait_for_record(gang, later, r);
  put(later, r->output, bytes);
}

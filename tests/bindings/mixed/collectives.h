/* Every collective of rank.c, each in both its forms. */
#include "results.h"

enum { kCount = 1000, kMost = 4 * kCount };

static const struct {
  gw_reduce reduce;
  const char *name;
} kinds[] = {{GW_SUM, "sum"}, {GW_MIN, "min"}, {GW_MAX, "max"}, {GW_MEAN, "mean"}, {GW_PRODUCT, "product"}};

static void reductions(gw_gang *gang) {
  static const struct {
    gw_dtype dtype;
    const char *name;
  } types[] = {{GW_F32, "f32"}, {GW_F64, "f64"}, {GW_I32, "i32"}, {GW_I64, "i64"}};
  double x[kCount], y[kCount];
  for (int t = 0; t < 4; ++t)
    for (int k = 0; k < (t < 2 ? 5 : 3); ++k) {
      char name[64];
      snprintf(name, sizeof name, "all_reduce %s %s", types[t].name, kinds[k].name);
      fill(x, types[t].dtype, kCount, t);
      gw_collective r = record(GW_ALL_REDUCE, x, y, kCount);
      r.dtype = types[t].dtype;
      r.reduce = kinds[k].reduce;
      both(gang, name, &r, kCount * gw_dtype_bytes(r.dtype));
    }
  fill(x, GW_F32, kCount, 0);
  gw_collective r = record(GW_ALL_REDUCE, x, y, kCount);
  r.reduce = GW_SUM;
  r.accumulate = 1;
  fill(y, GW_F32, kCount, 80);
  need(gw_gang_run(gang, &r, NULL, NULL), "accumulate");
  put("accumulate", y, kCount * sizeof(float));
  fill(y, GW_F32, kCount, 80);
  wait_for_record(gang, "accumulate later", &r);
  put("accumulate later", y, kCount * sizeof(float));
}

static void moves(gw_gang *gang) {
  static float x[kMost], y[kMost];
  fill(x, GW_F32, kMost, 10);
  gw_collective r = record(GW_ALL_GATHER, x, y, kCount);
  both(gang, "all_gather", &r, sizeof y);
  void *parts[4] = {y, y + kCount, y + 2 * kCount, y + 3 * kCount};
  need(gw_gang_all_gather_list(gang, x, parts, kCount, GW_F32, NULL), "all_gather_list");
  put("all_gather_list", y, sizeof y);
  gw_work *work = NULL;
  memset(y, 0, sizeof y);
  need(gw_gang_all_gather_list_async(gang, x, parts, kCount, GW_F32, NULL, &work), "all_gather_list later");
  wait_and_release(work, "all_gather_list later");
  put("all_gather_list later", y, sizeof y);
  r = record(GW_REDUCE_SCATTER, x, y, kCount);
  for (int k = 0; k < 5; ++k) {
    char name[64];
    snprintf(name, sizeof name, "reduce_scatter %s", kinds[k].name);
    r.reduce = kinds[k].reduce;
    both(gang, name, &r, sizeof y / 4);
  }
  r = record(GW_ALL_TO_ALL, x, y, kCount);
  both(gang, "all_to_all", &r, sizeof y);
}

/* Rank r brings or gets r + 1 elements; in all_to_all it sends so many to every rank. */
static void parts_of_counts(gw_gang *gang) {
  static const size_t counts[4] = {1, 2, 3, 4};
  const size_t mine = (size_t)me + 1, sent[8] = {mine, mine, mine, mine, 1, 2, 3, 4};
  const size_t whole_bytes = 10 * sizeof(float), my_bytes = mine * sizeof(float);
  float x[16], y[10];
  fill(x, GW_F32, 16, 90);
  gw_collective r = record(GW_ALL_TO_ALL, x, y, 0);
  r.counts = sent;
  both(gang, "all_to_all counts", &r, whole_bytes);
  r.op = GW_ALL_GATHER;
  r.counts = counts;
  both(gang, "all_gather counts", &r, whole_bytes);
  r.op = GW_REDUCE_SCATTER;
  r.reduce = GW_SUM;
  both(gang, "reduce_scatter counts", &r, my_bytes);
  r.reduce = GW_REDUCE_NONE;
  r.peer = 2;
  r.op = GW_GATHER;
  both(gang, "gather counts", &r, me == 2 ? whole_bytes : 0);
  r.op = GW_SCATTER;
  both(gang, "scatter counts", &r, my_bytes);
}

static void rooted(gw_gang *gang, int root) {
  static float x[kMost], y[kMost];
  const int here = me == root;
  char name[64];
  fill(x, GW_F32, kMost, 20 + root);
  gw_collective r = record(GW_BROADCAST, x, y, kCount);
  r.peer = root;
  snprintf(name, sizeof name, "broadcast from %d", root);
  both(gang, name, &r, sizeof y / 4);
  r.op = GW_REDUCE;
  for (int k = 0; k < 5; ++k) {
    snprintf(name, sizeof name, "reduce %s to %d", kinds[k].name, root);
    r.reduce = kinds[k].reduce;
    both(gang, name, &r, here ? sizeof y / 4 : 0);
  }
  r.op = GW_GATHER;
  r.reduce = GW_REDUCE_NONE;
  snprintf(name, sizeof name, "gather to %d", root);
  both(gang, name, &r, here ? sizeof y : 0);
  r.op = GW_SCATTER;
  snprintf(name, sizeof name, "scatter from %d", root);
  both(gang, name, &r, sizeof y / 4);
}

static void exchanges(gw_gang *gang) {
  static float x[kCount], y[kCount];
  const int next = (me + 1) % 4, before = (me + 3) % 4, other = me ^ 1;
  fill(x, GW_F32, kCount, 30);
  gw_collective records[2] = {record(GW_SEND, x, NULL, kCount), record(GW_RECV, NULL, y, kCount)};
  records[0].peer = next;
  records[1].peer = before;
  need(gw_gang_run_batch(gang, records, 2, NULL, NULL), "batch");
  put("batch", y, sizeof y);
  if (me < other) need(gw_gang_send(gang, x, kCount, GW_F32, other, NULL), "send");
  need(gw_gang_recv(gang, y, kCount, GW_F32, other, NULL), "recv");
  put("recv", y, sizeof y);
  if (me > other) need(gw_gang_send(gang, x, kCount, GW_F32, other, NULL), "send");
  gw_work *sent = NULL, *got = NULL;
  need(gw_gang_recv_async(gang, y, kCount, GW_F32, next, NULL, &got), "recv later");
  need(gw_gang_send_async(gang, x, kCount, GW_F32, before, NULL, &sent), "send later");
  wait_and_release(got, "recv later");
  wait_and_release(sent, "send later");
  put("recv later", y, sizeof y);
}

static void small_things(gw_gang *gang) {
  need(gw_gang_barrier(gang, NULL), "barrier");
  gw_work *work = NULL;
  need(gw_gang_barrier_async(gang, NULL, &work), "barrier later");
  wait_and_release(work, "barrier later");
  for (int root = 0; root < size; ++root) {
    int32_t flag = 0;
    need(gw_gang_broadcast_flag(gang, me == 2, root, &flag), "flag");
    put("flag", &flag, 1);
    flag = 7;
    need(gw_gang_broadcast_flag_async(gang, me == 2, root, &flag, &work), "flag later");
    wait_and_release(work, "flag later");
    put("flag later", &flag, 1);
  }
  double sum = 0;
  need(gw_gang_all_sum(gang, (double)whole(0, me, 40) / 1000.0, &sum), "all_sum");
  put("all_sum", &sum, sizeof sum);
  sum = 0;
  need(gw_gang_all_sum_async(gang, (double)whole(0, me, 40) / 1000.0, &sum, &work), "all_sum later");
  wait_and_release(work, "all_sum later");
  put("all_sum later", &sum, sizeof sum);
}

static void bytes(gw_gang *gang) {
  static const char text[] = "rank 0 rank 1 rank 2 rank 3 ";
  gw_bytes *made = NULL;
  for (int root = 0; root < size; ++root) {
    need(gw_gang_broadcast_bytes(gang, text + 7 * me, 7, root, &made), "broadcast_bytes");
    put("broadcast_bytes", gw_bytes_data(made), gw_bytes_size(made));
    gw_bytes_release(made);
  }
  size_t sizes[4];
  need(gw_gang_all_gather_bytes(gang, text, (size_t)me, sizes, &made), "all_gather_bytes");
  put("all_gather_bytes", gw_bytes_data(made), gw_bytes_size(made));
  gw_bytes_release(made);
}

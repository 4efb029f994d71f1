#include "testing.h"

#include <unistd.h>

/* --- stores and creation
 * ------------------------------------------------------------------------------------------- */

static gw_gang* alone(void) {
  gw_gang* gang = NULL;
  assert_ok(gw_gang_create(NULL, &gang));
  return gang;
}

static void one_rank_without_an_environment(void** state) {
  (void)state;
  gw_gang* gang = alone();
  assert_int_equal(gw_gang_rank(gang), 0);
  assert_int_equal(gw_gang_size(gang), 1);
  assert_string_equal(gw_gang_name(gang), "gang");
  assert_string_equal(gw_gang_engine(gang), "self");
  assert_string_equal(gw_gang_device(gang), "cpu");
  assert_int_equal(gw_gang_rank(NULL), -1);
  assert_int_equal(gw_gang_size(NULL), -1);
  assert_string_equal(gw_gang_name(NULL), "");
  assert_string_equal(gw_gang_engine(NULL), "");
  assert_string_equal(gw_gang_device(NULL), "");
  assert_ptr_equal(gw_gang_retain(gang), gang);
  gw_gang_release(gang);
  assert_int_equal(gw_gang_size(gang), 1);
  gw_gang_release(gang);
  gw_gang_release(NULL);
  assert_null(gw_gang_retain(NULL));
}

static void bad_options_are_refused(void** state) {
  (void)state;
  gw_gang* gang = (gw_gang*)state;
  gw_gang_options o;
#define REFUSED_WITH(field, value, code, part)              \
  gw_gang_options_init(&o, sizeof o);                       \
  o.field = value;                                          \
  assert_refused_as(gw_gang_create(&o, &gang), code, part); \
  assert_null(gang)
  REFUSED_WITH(device, "cuda", GW_E_NOT_SUPPORTED, "libgangway_cuda.so is not installed");
  REFUSED_WITH(device, "toaster", GW_E_INVALID_ARGUMENT, "toaster");
  REFUSED_WITH(engine, "nccl", GW_E_NOT_SUPPORTED, "nccl");
  REFUSED_WITH(engine, "mpi", GW_E_NOT_SUPPORTED, "mpi");
  REFUSED_WITH(engine, "gloo", GW_E_NOT_SUPPORTED, "gloo");
  REFUSED_WITH(engine, "bus", GW_E_INVALID_ARGUMENT, "bus");
  REFUSED_WITH(timeout_ms, -5, GW_E_INVALID_ARGUMENT, "timeout_ms is -5");
  REFUSED_WITH(liveness_ms, -5, GW_E_INVALID_ARGUMENT, "liveness_ms is -5");
  REFUSED_WITH(threads, -5, GW_E_INVALID_ARGUMENT, "threads is -5");
  REFUSED_WITH(expected_size, -5, GW_E_INVALID_ARGUMENT, "expected_size is -5");
  REFUSED_WITH(expected_size, 4, GW_E_INVALID_ARGUMENT, "4");
  REFUSED_WITH(id, "x", GW_E_INVALID_ARGUMENT, "no rank and size");
#undef REFUSED_WITH
  gw_gang_options_init(&o, sizeof o);
  o.rank = 3;
  o.size = 2;
  assert_refused(gw_gang_create(&o, &gang), "rank 3 is outside a gang of 2");
  o.rank = 0;
  assert_refused(gw_gang_create(&o, &gang), "neither store nor id");
  o.id = "short";
  o.id_size = 5;
  assert_refused(gw_gang_create(&o, &gang), "id_size is 5");
  assert_refused(gw_gang_create(NULL, NULL), "out_gang is null");
  gw_gang_options_init(NULL, sizeof o);
  assert_refused(gw_gang_create_threads(0, NULL, &gang), "count is 0");
  assert_refused(gw_gang_create_threads(-2, NULL, &gang), "count is -2");
  assert_refused(gw_gang_create_threads(2, NULL, NULL), "out_gangs is null");
}

static void environment_is_checked(void** state) {
  (void)state;
  gw_gang* gang = NULL;
  setenv("RANK", "0", 1);
  assert_refused(gw_gang_create(NULL, &gang), "WORLD_SIZE");
  setenv("WORLD_SIZE", "two", 1);
  assert_refused(gw_gang_create(NULL, &gang), "WORLD_SIZE");
  setenv("WORLD_SIZE", "2", 1);
  setenv("RANK", "2", 1);
  assert_refused(gw_gang_create(NULL, &gang), "RANK");
  unsetenv("RANK");
  unsetenv("WORLD_SIZE");
}

static void ids_are_random(void** state) {
  (void)state;
  char a[64], b[64];
  size_t size = 0;
  assert_ok(gw_gang_id_create(a, sizeof a, &size));
  assert_int_equal(size, 64);
  assert_ok(gw_gang_id_create(b, sizeof b, &size));
  assert_memory_not_equal(a, b, 64);
  assert_refused(gw_gang_id_create(a, 63, &size), "63");
  assert_int_equal(size, 0);
  assert_refused(gw_gang_id_create(NULL, 64, &size), "id is null");
  assert_refused(gw_gang_id_create(a, 64, NULL), "out_size is null");
}

/* A store of the caller: a list of keys under a lock. */
typedef struct entry {
  char key[128];
  void* value;
  size_t size;
  struct entry* next;
} entry;
typedef struct own_store {
  pthread_mutex_t lock;
  entry* entries;
  int freed, failing;
} own_store;

static entry* find(own_store* s, const char* key) {
  entry* e = s->entries;
  while (e != NULL && strcmp(e->key, key) != 0) e = e->next;
  return e;
}
static gw_status own_put(void* user, const char* key, const void* value, size_t size) {
  own_store* s = user;
  if (s->failing) return GW_E_IO;
  pthread_mutex_lock(&s->lock);
  entry* e = find(s, key);
  if (e == NULL) {
    e = calloc(1, sizeof *e);
    snprintf(e->key, sizeof e->key, "%s", key);
    e->next = s->entries;
    s->entries = e;
  }
  free(e->value);
  e->value = malloc(size + 1);
  memcpy(e->value, value, size);
  e->size = size;
  pthread_mutex_unlock(&s->lock);
  return GW_OK;
}
static gw_status own_get(void* user, const char* key, void* value, size_t capacity, int64_t* out_size) {
  own_store* s = user;
  if (s->failing) return GW_E_IO;
  pthread_mutex_lock(&s->lock);
  const entry* e = find(s, key);
  *out_size = e != NULL && e->value != NULL ? (int64_t)e->size : -1;
  if (*out_size >= 0) memcpy(value, e->value, e->size < capacity ? e->size : capacity);
  pthread_mutex_unlock(&s->lock);
  return GW_OK;
}
static gw_status own_remove(void* user, const char* key) {
  own_store* s = user;
  pthread_mutex_lock(&s->lock);
  entry* e = find(s, key);
  if (e != NULL) {
    free(e->value);
    e->value = NULL;
  }
  pthread_mutex_unlock(&s->lock);
  return GW_OK;
}
static void own_free(void* user) { ++((own_store*)user)->freed; }
static void clear_store(own_store* s) {
  while (s->entries != NULL) {
    entry* e = s->entries;
    s->entries = e->next;
    free(e->value);
    free(e);
  }
}

static gw_store_callbacks callbacks_of(own_store* s) {
  gw_store_callbacks c;
  gw_store_callbacks_init(&c, sizeof c);
  c.put = own_put;
  c.get = own_get;
  c.remove = own_remove;
  c.user = s;
  c.free_user = own_free;
  return c;
}

/* Two ranks of one process meet by a store, like processes do. */
typedef struct meeting {
  gw_store* store;
  const void* id;
  int32_t rank;
  float sum;
  gw_status status;
  char text[300];
} meeting;

static void* meet(void* argument) {
  meeting* m = argument;
  gw_gang_options o;
  gw_gang_options_init(&o, sizeof o);
  o.rank = m->rank;
  o.size = 2;
  o.store = m->store;
  o.id = m->id;
  o.id_size = m->id != NULL ? 64 : 0;
  o.timeout_ms = 10000;
  o.threads = 1;
  o.arena_bytes = (uint64_t)1 << 30;
  gw_gang* gang = NULL;
  m->status = gw_gang_create(&o, &gang);
  snprintf(m->text, sizeof m->text, "%s", last_error().message);
  if (m->status != GW_OK) return NULL;
  const float mine = (float)m->rank + 1;
  m->status = gw_gang_all_reduce(gang, &mine, &m->sum, 1, GW_F32, GW_SUM, NULL);
  snprintf(m->text, sizeof m->text, "%s", last_error().message);
  if (m->status == GW_OK) m->status = gw_gang_shutdown(gang, -1);
  gw_gang_release(gang);
  return NULL;
}

static void meet_both(gw_store* store, const void* id) {
  meeting m[2];
  pthread_t threads[2];
  memset(m, 0, sizeof m);
  for (int i = 0; i < 2; ++i) {
    m[i].store = store;
    m[i].id = id;
    m[i].rank = i;
    assert_int_equal(pthread_create(&threads[i], NULL, meet, &m[i]), 0);
  }
  for (int i = 0; i < 2; ++i) pthread_join(threads[i], NULL);
  for (int i = 0; i < 2; ++i) {
    if (m[i].status != GW_OK) fail_msg("rank %d: %s: %s", i, gw_status_name(m[i].status), m[i].text);
    assert_true(m[i].sum == 3.0f);
  }
}

static void ranks_meet_in_a_file_store(void** state) {
  (void)state;
  char folder[] = "/tmp/gangway-store-XXXXXX";
  assert_non_null(mkdtemp(folder));
  gw_store* store = NULL;
  assert_ok(gw_store_create_file(folder, &store));
  meet_both(store, NULL);
  gw_store_release(store);
  gw_store_release(NULL);
  char command[100];
  snprintf(command, sizeof command, "rm -r %s", folder);
  assert_int_equal(system(command), 0);
  assert_refused(gw_store_create_file(NULL, &store), "folder is null");
  assert_null(store);
  assert_refused(gw_store_create_file("x", NULL), "out_store is null");
}

static void ranks_meet_in_the_callers_store(void** state) {
  (void)state;
  own_store own = {.lock = PTHREAD_MUTEX_INITIALIZER};
  const gw_store_callbacks c = callbacks_of(&own);
  gw_store* store = NULL;
  assert_ok(gw_store_create_callbacks(&c, &store));
  meet_both(store, NULL);
  assert_int_equal(own.freed, 0);
  gw_store_release(store);
  assert_int_equal(own.freed, 1);
  clear_store(&own);
}

static void ranks_meet_by_an_id(void** state) {
  (void)state;
  char id[64];
  size_t size = 0;
  assert_ok(gw_gang_id_create(id, sizeof id, &size));
  meet_both(NULL, id);
}

static void store_callbacks_are_freed_once(void** state) {
  (void)state;
  own_store own = {.lock = PTHREAD_MUTEX_INITIALIZER};
  gw_store_callbacks c = callbacks_of(&own);
  gw_store* store = NULL;
  c.get = NULL;
  assert_refused(gw_store_create_callbacks(&c, &store), "put, get and remove");
  assert_int_equal(own.freed, 1);
  c = callbacks_of(&own);
  assert_refused(gw_store_create_callbacks(&c, NULL), "out_store is null");
  assert_int_equal(own.freed, 2);
  assert_refused(gw_store_create_callbacks(NULL, &store), "callbacks is null");
  gw_store_callbacks_init(NULL, 8);
  /* What a callback returns is what creation returns. */
  own.failing = 1;
  c = callbacks_of(&own);
  assert_ok(gw_store_create_callbacks(&c, &store));
  meeting m = {.store = store};
  meet(&m);
  assert_int_equal(m.status, GW_E_CALLER);
  assert_non_null(strstr(m.text, "14"));
  gw_store_release(store);
  assert_int_equal(own.freed, 3);
  clear_store(&own);
}

/* --- sub-gangs
 * ------------------------------------------------------------------------------------------------------ */

static void sub_gangs(rank* me) {
  gw_gang* gang = NULL;
  const int32_t turned[2] = {2, 0}, twice[2] = {1, 1}, outside[2] = {0, 3}, negative[1] = {-1};
  EXPECT_OK(gw_gang_create_gang(me->gang, turned, 2, &gang));
  EXPECT((me->index == 1) == (gang == NULL));
  EXPECT(me->index != 2 || gw_gang_rank(gang) == 0);
  EXPECT(me->index != 0 || gw_gang_rank(gang) == 1);
  gw_gang_release(gang);
  EXPECT_REFUSED(gw_gang_create_gang(me->gang, twice, 2, &gang), "1");
  EXPECT(gang == NULL);
  EXPECT_REFUSED(gw_gang_create_gang(me->gang, outside, 2, &gang), "3");
  EXPECT_REFUSED(gw_gang_create_gang(me->gang, negative, 1, &gang), "-1");
  EXPECT_REFUSED(gw_gang_create_gang(me->gang, NULL, 0, &gang), "empty");
  /* One rank's refusal is everybody's, with that rank's text, and the gang works on. */
  EXPECT_REFUSED(gw_gang_create_gang(me->gang, me->index == 1 ? NULL : turned, 2, &gang), "ranks is null");
  EXPECT_REFUSED(gw_gang_create_gang(me->gang, me->index == 1 ? outside : turned, 2, &gang), "3");
  EXPECT_OK(gw_gang_async_error(me->gang));
  EXPECT_STATUS(gw_gang_create_gang(me->gang, turned, me->index == 1 ? 1 : 2, &gang), GW_E_MISMATCH,
                "rank 1");
  EXPECT_OK(gw_gang_split(me->gang, me->index == 2 ? -1 : 0, -me->index, &gang));
  EXPECT((me->index == 2) == (gang == NULL));
  EXPECT(gang == NULL || (gw_gang_size(gang) == 2 && gw_gang_rank(gang) == 1 - me->index));
  gw_gang_release(gang);
  EXPECT_OK(gw_gang_duplicate(me->gang, &gang));
  EXPECT(gw_gang_size(gang) == 3 && gw_gang_rank(gang) == me->index);
  /* Children hold their parents: any order of release. */
  gw_gang_retain(me->gang);
  gw_gang_release(me->gang);
  EXPECT_OK(gw_gang_barrier(gang, NULL));
  EXPECT_OK(gw_gang_shutdown(gang, -1));
  EXPECT_STATUS(gw_gang_barrier(gang, NULL), GW_E_INVALID_STATE, "shut down");
  gw_gang_release(gang);
}

static void sub_gangs_keep_the_lists_order(void** state) {
  (void)state;
  run_ranks(3, sub_gangs, NULL);
  gw_gang* gang = NULL;
  const int32_t first = 0;
  assert_refused(gw_gang_create_gang(NULL, &first, 1, &gang), "gang is null");
  assert_refused(gw_gang_split(NULL, 0, 0, &gang), "gang is null");
  assert_refused(gw_gang_duplicate(NULL, &gang), "gang is null");
  gw_gang* own = alone();
  assert_refused(gw_gang_create_gang(own, &first, 1, NULL), "out_gang is null");
  assert_refused(gw_gang_split(own, 0, 0, NULL), "out_gang is null");
  assert_refused(gw_gang_duplicate(own, NULL), "out_gang is null");
  gw_gang_release(own);
}

/* --- collectives
 * ---------------------------------------------------------------------------------------------------- */

static void all_collectives(rank* me) {
  const int32_t n = me->size, r = me->index;
  float x[2] = {(float)r, 10.0f}, y[2] = {0}, many[8] = {0}, in[8];
  double sum = 0;
  int32_t flag = -1;
  EXPECT_OK(gw_gang_barrier(me->gang, NULL));
  EXPECT_OK(gw_gang_all_reduce(me->gang, x, y, 2, GW_F32, GW_SUM, NULL));
  EXPECT(y[0] == (float)(n * (n - 1) / 2) && y[1] == 10.0f * (float)n);
  EXPECT_OK(gw_gang_all_reduce(me->gang, x, y, 2, GW_F32, GW_MEAN, NULL));
  EXPECT(y[0] == (float)(n - 1) / 2 && y[1] == 10.0f);
  EXPECT_OK(gw_gang_all_reduce(me->gang, x, y, 1, GW_F32, GW_MAX, NULL));
  EXPECT(y[0] == (float)(n - 1));
  EXPECT_OK(gw_gang_all_gather(me->gang, x, many, 1, GW_F32, NULL));
  for (int32_t i = 0; i < n; ++i) EXPECT(many[i] == (float)i);
  float first = -1, second = -1, third = -1;
  void* outputs[3] = {&first, &second, &third};
  EXPECT_OK(gw_gang_all_gather_list(me->gang, x, outputs, 1, GW_F32, NULL));
  EXPECT(first == 0 && (n < 2 || second == 1) && (n < 3 || third == 2));
  for (int32_t i = 0; i < n; ++i) in[i] = (float)(10 * r + i);
  EXPECT_OK(gw_gang_reduce_scatter(me->gang, in, y, 1, GW_F32, GW_SUM, NULL));
  EXPECT(y[0] == (float)(5 * n * (n - 1) + n * r));
  EXPECT_OK(gw_gang_all_to_all(me->gang, in, many, 1, GW_F32, NULL));
  for (int32_t i = 0; i < n; ++i) EXPECT(many[i] == (float)(10 * i + r));
  const int32_t root = n - 1;
  EXPECT_OK(gw_gang_broadcast(me->gang, r == root ? x : NULL, y, 1, GW_F32, root, NULL));
  EXPECT(y[0] == (float)root);
  EXPECT_OK(gw_gang_reduce(me->gang, x, r == root ? y : NULL, 1, GW_F32, GW_SUM, root, NULL));
  EXPECT(r != root || y[0] == (float)(n * (n - 1) / 2));
  EXPECT_OK(gw_gang_gather(me->gang, x, r == root ? many : NULL, 1, GW_F32, root, NULL));
  EXPECT(r != root || many[root] == (float)root);
  EXPECT_OK(gw_gang_scatter(me->gang, r == root ? in : NULL, y, 1, GW_F32, root, NULL));
  EXPECT(y[0] == (float)(10 * root + r));
  EXPECT_OK(gw_gang_all_sum(me->gang, 1.5, &sum));
  EXPECT(sum == 1.5 * n);
  EXPECT_OK(gw_gang_broadcast_flag(me->gang, r == root ? 5 : 0, root, &flag));
  EXPECT(flag == 1);
  size_t sizes[3];
  gw_bytes* bytes = NULL;
  EXPECT_OK(gw_gang_all_gather_bytes(me->gang, "abc", (size_t)r, sizes, &bytes));
  EXPECT(gw_bytes_size(bytes) == (size_t)(n * (n - 1) / 2) && sizes[n - 1] == (size_t)(n - 1));
  EXPECT(n < 3 || memcmp(gw_bytes_data(bytes), "aab", 3) == 0);
  gw_bytes_release(bytes);
  EXPECT_OK(gw_gang_broadcast_bytes(me->gang, r == root ? "text" : NULL, 4, root, &bytes));
  EXPECT(gw_bytes_size(bytes) == 4 && memcmp(gw_bytes_data(bytes), "text", 4) == 0);
  gw_bytes_release(bytes);
  /* A ring by plain sends and receives. */
  if (n > 1) {
    const int32_t next = (r + 1) % n, before = (r + n - 1) % n;
    if (r == 0) {
      EXPECT_OK(gw_gang_send(me->gang, x, 1, GW_F32, next, NULL));
      EXPECT_OK(gw_gang_recv(me->gang, y, 1, GW_F32, before, NULL));
    } else {
      EXPECT_OK(gw_gang_recv(me->gang, y, 1, GW_F32, before, NULL));
      EXPECT_OK(gw_gang_send(me->gang, x, 1, GW_F32, next, NULL));
    }
    EXPECT(y[0] == (float)before);
  }
  EXPECT_OK(gw_gang_all_reduce(me->gang, NULL, NULL, 0, GW_F32, GW_SUM, NULL)); /* nothing is legal */
}

static void collectives_give_known_values(void** state) {
  (void)state;
  for (int32_t n = 1; n <= 3; ++n) run_ranks(n, all_collectives, NULL);
}

#define WAIT_AND_RELEASE(start)         \
  do {                                  \
    gw_work* work_ = NULL;              \
    EXPECT_OK(start);                   \
    EXPECT(work_ != NULL);              \
    EXPECT_OK(gw_work_wait(work_, -1)); \
    EXPECT_OK(gw_work_error(work_));    \
    gw_work_release(work_);             \
  } while (0)

static void all_async(rank* me) {
  const int32_t n = me->size, r = me->index, root = 0;
  float x = (float)r + 1, y = 0, many[3] = {0}, in[3] = {1, 2, 3};
  WAIT_AND_RELEASE(gw_gang_barrier_async(me->gang, NULL, &work_));
  WAIT_AND_RELEASE(gw_gang_all_reduce_async(me->gang, &x, &y, 1, GW_F32, GW_SUM, NULL, &work_));
  EXPECT(y == (float)(n * (n + 1) / 2));
  WAIT_AND_RELEASE(gw_gang_all_gather_async(me->gang, &x, many, 1, GW_F32, NULL, &work_));
  EXPECT(many[n - 1] == (float)n);
  WAIT_AND_RELEASE(gw_gang_reduce_scatter_async(me->gang, in, &y, 1, GW_F32, GW_SUM, NULL, &work_));
  EXPECT(y == (float)(n * (r + 1)));
  WAIT_AND_RELEASE(gw_gang_broadcast_async(me->gang, &x, &y, 1, GW_F32, root, NULL, &work_));
  EXPECT(y == 1);
  WAIT_AND_RELEASE(gw_gang_reduce_async(me->gang, &x, &y, 1, GW_F32, GW_SUM, root, NULL, &work_));
  EXPECT(r != root || y == (float)(n * (n + 1) / 2));
  WAIT_AND_RELEASE(gw_gang_gather_async(me->gang, &x, many, 1, GW_F32, root, NULL, &work_));
  WAIT_AND_RELEASE(gw_gang_scatter_async(me->gang, in, &y, 1, GW_F32, root, NULL, &work_));
  EXPECT(y == (float)(r + 1));
  WAIT_AND_RELEASE(gw_gang_all_to_all_async(me->gang, in, many, 1, GW_F32, NULL, &work_));
  EXPECT(many[0] == (float)(r + 1));
  if (n > 1) {
    gw_work* works[2] = {NULL, NULL};
    EXPECT_OK(gw_gang_recv_async(me->gang, &y, 1, GW_F32, (r + n - 1) % n, NULL, &works[0]));
    EXPECT_OK(gw_gang_send_async(me->gang, &x, 1, GW_F32, (r + 1) % n, NULL, &works[1]));
    EXPECT_OK(gw_work_wait_many(works, 2, -1));
    EXPECT(y == (float)((r + n - 1) % n + 1));
    int32_t done = 0;
    EXPECT_OK(gw_work_poll(works[0], &done));
    EXPECT(done == 1);
    EXPECT_OK(gw_work_order(works[1], NULL));
    for (int i = 0; i < 2; ++i) gw_work_release(works[i]);
  }
}

static void async_collectives_give_known_values(void** state) {
  (void)state;
  for (int32_t n = 1; n <= 3; ++n) run_ranks(n, all_async, NULL);
}

static void records(rank* me) {
  const int32_t n = me->size, r = me->index;
  float x = (float)r, out[2] = {0, 0};
  gw_collective batch[2];
  for (int i = 0; i < 2; ++i) gw_collective_init(&batch[i], sizeof batch[i]);
  batch[0].op = GW_SEND;
  batch[0].input = &x;
  batch[0].peer = (r + 1) % n;
  batch[1].op = GW_RECV;
  batch[1].output = &out[0];
  batch[1].peer = (r + n - 1) % n;
  for (int i = 0; i < 2; ++i) {
    batch[i].count = 1;
    batch[i].dtype = GW_F32;
  }
  EXPECT_OK(gw_gang_run_batch(me->gang, batch, 2, NULL, NULL));
  EXPECT(out[0] == (float)((r + n - 1) % n));
  /* Counts per rank: rank i gives i elements. */
  const size_t counts[3] = {0, 1, 2};
  float in[2] = {(float)r, (float)r}, all[3] = {0};
  gw_collective gather;
  gw_collective_init(&gather, sizeof gather);
  gather.op = GW_ALL_GATHER;
  gather.input = in;
  gather.output = all;
  gather.counts = counts;
  gather.dtype = GW_F32;
  gw_work* work = NULL;
  EXPECT_OK(gw_gang_run(me->gang, &gather, NULL, &work));
  EXPECT_OK(gw_work_wait(work, -1));
  gw_work_release(work);
  EXPECT(all[0] == 1 && all[1] == 2 && all[2] == 2);
  gw_collective add;
  gw_collective_init(&add, sizeof add);
  add.op = GW_ALL_REDUCE;
  add.reduce = GW_SUM;
  add.dtype = GW_F32;
  add.count = 1;
  add.input = &x;
  add.output = out;
  add.accumulate = 1;
  out[0] = 100;
  EXPECT_OK(gw_gang_run(me->gang, &add, NULL, NULL));
  EXPECT(out[0] == 103);
  EXPECT_OK(gw_gang_run_batch(me->gang, NULL, 0, NULL, NULL));
}

static void records_in_batches_and_with_counts(void** state) {
  (void)state;
  run_ranks(3, records, NULL);
}

/* Every refusal of a collective's arguments: code, and a text with the number. Local: peers need not come. */
static void bad_collectives_are_refused(void** state) {
  (void)state;
  gw_gang* gangs[2];
  assert_ok(gw_gang_create_threads(2, NULL, gangs));
  gw_gang* g = gangs[0];
  float x[4] = {0}, y[4];
  int32_t i[2] = {0};
  uint8_t b[2] = {0};
  gw_bytes* bytes = NULL;
  size_t sizes[2];
  double sum;
  int32_t flag;
  assert_refused(gw_gang_all_reduce(g, x, y, 1, GW_F32, GW_REDUCE_NONE, NULL), "none");
  assert_refused(gw_gang_all_reduce(g, x, y, 1, GW_F32, 6, NULL), "unknown");
  assert_refused(gw_gang_all_reduce(g, x, y, 1, GW_F32, -1, NULL), "unknown");
  assert_refused(gw_gang_all_reduce(g, i, i, 1, GW_I32, GW_MEAN, NULL), "mean");
  assert_refused(gw_gang_all_reduce(g, x, y, 1, GW_C64, GW_SUM, NULL), "cannot be reduced");
  assert_refused(gw_gang_all_reduce(g, x, y, 1, GW_U16, GW_SUM, NULL), "cannot be reduced");
  assert_refused(gw_gang_all_reduce(g, b, b, 1, GW_BOOL, GW_SUM, NULL), "bool");
  assert_refused(gw_gang_all_reduce(g, NULL, y, 1, GW_F32, GW_SUM, NULL), "null");
  assert_refused(gw_gang_all_reduce(g, x, NULL, 1, GW_F32, GW_SUM, NULL), "null");
  assert_refused(gw_gang_all_reduce(g, x, x + 1, 2, GW_F32, GW_SUM, NULL), "overlap");
  assert_refused(gw_gang_all_reduce(g, x, y, SIZE_MAX / 2, GW_F32, GW_SUM, NULL), "address");
  assert_refused(gw_gang_all_gather(g, x, y, 1, GW_DTYPE_NONE, NULL), "moved");
  assert_refused(gw_gang_all_gather(g, x, y, 1, 0x22002, NULL), "moved");
  assert_refused(gw_gang_all_reduce(g, x, y, 1, GW_F32, GW_SUM, x), "stream is not null");
  assert_refused(gw_gang_broadcast(g, x, y, 1, GW_F32, 2, NULL), "2 is outside [0, 2)");
  assert_refused(gw_gang_reduce(g, x, y, 1, GW_F32, GW_SUM, -1, NULL), "-1 is outside");
  assert_refused(gw_gang_gather(g, x, y, 1, GW_F32, 5, NULL), "5 is outside");
  assert_refused(gw_gang_scatter(g, x, y, 1, GW_F32, 5, NULL), "5 is outside");
  assert_refused(gw_gang_send(g, x, 1, GW_F32, 2, NULL), "2 is outside");
  assert_refused(gw_gang_recv(g, x, 1, GW_F32, -3, NULL), "-3 is outside");
  assert_refused(gw_gang_broadcast_bytes(g, "a", 1, 4, &bytes), "4");
  assert_refused(gw_gang_broadcast_flag(g, 1, 4, &flag), "4 is outside");
  gw_collective record;
  gw_collective_init(&record, sizeof record);
  assert_int_equal(record.op, GW_OP_INVALID);
  assert_int_equal(record.peer, -1);
  assert_refused(gw_gang_run(g, &record, NULL, NULL), "op is -1");
  record.op = 11;
  assert_refused(gw_gang_run(g, &record, NULL, NULL), "op is 11");
  record.op = GW_BARRIER;
  record.count = 3;
  assert_refused(gw_gang_run(g, &record, NULL, NULL), "count is 3");
  assert_refused(gw_gang_run(g, NULL, NULL, NULL), "records is null");
  assert_refused(gw_gang_run_batch(g, NULL, 2, NULL, NULL), "records is null");
  gw_collective_init(NULL, 100);
  /* Nothing of it broke the gang. */
  assert_ok(gw_gang_async_error(g));
  /* Null gangs and out-parameters. */
  gw_work* work = NULL;
  void* outputs[2] = {x, y};
  assert_refused(gw_gang_run(NULL, &record, NULL, &work), "null");
  gw_collective_init(&record, sizeof record);
  record.op = GW_BARRIER;
  assert_refused(gw_gang_run(NULL, &record, NULL, &work), "gang is null");
  assert_refused(gw_gang_run_batch(NULL, &record, 1, NULL, &work), "gang is null");
  assert_refused(gw_gang_barrier(NULL, NULL), "gang is null");
  assert_refused(gw_gang_barrier_async(NULL, NULL, &work), "gang is null");
  assert_refused(gw_gang_barrier_async(g, NULL, NULL), "out_work is null");
  assert_refused(gw_gang_all_reduce(NULL, x, y, 1, GW_F32, GW_SUM, NULL), "gang is null");
  assert_refused(gw_gang_all_reduce_async(NULL, x, y, 1, GW_F32, GW_SUM, NULL, &work), "gang is null");
  assert_refused(gw_gang_all_reduce_async(g, x, y, 1, GW_F32, GW_SUM, NULL, NULL), "out_work is null");
  assert_refused(gw_gang_all_gather(NULL, x, y, 1, GW_F32, NULL), "gang is null");
  assert_refused(gw_gang_all_gather_async(NULL, x, y, 1, GW_F32, NULL, &work), "gang is null");
  assert_refused(gw_gang_all_gather_async(g, x, y, 1, GW_F32, NULL, NULL), "out_work is null");
  assert_refused(gw_gang_all_gather_list(NULL, x, outputs, 1, GW_F32, NULL), "gang is null");
  assert_refused(gw_gang_all_gather_list(g, x, NULL, 1, GW_F32, NULL), "outputs is null");
  assert_refused(gw_gang_reduce_scatter(NULL, x, y, 1, GW_F32, GW_SUM, NULL), "gang is null");
  assert_refused(gw_gang_reduce_scatter_async(NULL, x, y, 1, GW_F32, GW_SUM, NULL, &work), "gang is null");
  assert_refused(gw_gang_reduce_scatter_async(g, x, y, 1, GW_F32, GW_SUM, NULL, NULL), "out_work is null");
  assert_refused(gw_gang_broadcast(NULL, x, y, 1, GW_F32, 0, NULL), "gang is null");
  assert_refused(gw_gang_broadcast_async(NULL, x, y, 1, GW_F32, 0, NULL, &work), "gang is null");
  assert_refused(gw_gang_broadcast_async(g, x, y, 1, GW_F32, 0, NULL, NULL), "out_work is null");
  assert_refused(gw_gang_reduce(NULL, x, y, 1, GW_F32, GW_SUM, 0, NULL), "gang is null");
  assert_refused(gw_gang_reduce_async(NULL, x, y, 1, GW_F32, GW_SUM, 0, NULL, &work), "gang is null");
  assert_refused(gw_gang_reduce_async(g, x, y, 1, GW_F32, GW_SUM, 0, NULL, NULL), "out_work is null");
  assert_refused(gw_gang_gather(NULL, x, y, 1, GW_F32, 0, NULL), "gang is null");
  assert_refused(gw_gang_gather_async(NULL, x, y, 1, GW_F32, 0, NULL, &work), "gang is null");
  assert_refused(gw_gang_gather_async(g, x, y, 1, GW_F32, 0, NULL, NULL), "out_work is null");
  assert_refused(gw_gang_scatter(NULL, x, y, 1, GW_F32, 0, NULL), "gang is null");
  assert_refused(gw_gang_scatter_async(NULL, x, y, 1, GW_F32, 0, NULL, &work), "gang is null");
  assert_refused(gw_gang_scatter_async(g, x, y, 1, GW_F32, 0, NULL, NULL), "out_work is null");
  assert_refused(gw_gang_all_to_all(NULL, x, y, 1, GW_F32, NULL), "gang is null");
  assert_refused(gw_gang_all_to_all_async(NULL, x, y, 1, GW_F32, NULL, &work), "gang is null");
  assert_refused(gw_gang_all_to_all_async(g, x, y, 1, GW_F32, NULL, NULL), "out_work is null");
  assert_refused(gw_gang_send(NULL, x, 1, GW_F32, 1, NULL), "gang is null");
  assert_refused(gw_gang_send_async(NULL, x, 1, GW_F32, 1, NULL, &work), "gang is null");
  assert_refused(gw_gang_send_async(g, x, 1, GW_F32, 1, NULL, NULL), "out_work is null");
  assert_refused(gw_gang_recv(NULL, x, 1, GW_F32, 1, NULL), "gang is null");
  assert_refused(gw_gang_recv_async(NULL, x, 1, GW_F32, 1, NULL, &work), "gang is null");
  assert_refused(gw_gang_recv_async(g, x, 1, GW_F32, 1, NULL, NULL), "out_work is null");
  assert_refused(gw_gang_broadcast_bytes(NULL, "a", 1, 0, &bytes), "gang is null");
  assert_refused(gw_gang_broadcast_bytes(g, "a", 1, 0, NULL), "out_bytes is null");
  assert_refused(gw_gang_broadcast_bytes(g, NULL, 1, 0, &bytes), "data is null");
  assert_refused(gw_gang_all_gather_bytes(NULL, "a", 1, sizes, &bytes), "gang is null");
  assert_refused(gw_gang_all_gather_bytes(g, "a", 1, NULL, &bytes), "out_sizes is null");
  assert_refused(gw_gang_all_gather_bytes(g, NULL, 1, sizes, &bytes), "data is null");
  assert_refused(gw_gang_all_gather_bytes(g, "a", 1, sizes, NULL), "out_bytes is null");
  assert_null(bytes);
  assert_refused(gw_gang_broadcast_flag(NULL, 1, 0, &flag), "gang is null");
  assert_refused(gw_gang_broadcast_flag(g, 1, 0, NULL), "out_flag is null");
  assert_refused(gw_gang_all_sum(NULL, 1, &sum), "gang is null");
  assert_refused(gw_gang_all_sum(g, 1, NULL), "out_sum is null");
  assert_null(work);
  assert_refused(gw_work_poll(NULL, &flag), "work is null");
  assert_refused(gw_work_wait(NULL, 0), "work is null");
  assert_refused(gw_work_wait_many(NULL, 1, 0), "works is null");
  assert_refused(gw_work_wait_many(&work, 1, 0), "is null");
  assert_ok(gw_work_wait_many(NULL, 0, 0));
  assert_refused(gw_work_order(NULL, NULL), "work is null");
  assert_refused(gw_work_error(NULL), "work is null");
  gw_work_release(NULL);
  for (int k = 0; k < 2; ++k) gw_gang_release(gangs[k]);
}

/* --- works
 * ----------------------------------------------------------------------------------------------------------
 */

static void works(rank* me) {
  float x = 1, y = 0;
  int32_t done = -1, freed[3] = {0, 0, 0};
  gw_work* work = NULL;
  if (me->index == 0) {
    EXPECT_OK(gw_gang_recv_async(me->gang, &y, 1, GW_F32, 1, NULL, &work));
    EXPECT_OK(gw_work_poll(work, &done));
    EXPECT(done == 0);
    EXPECT_STATUS(gw_work_wait(work, 1), GW_E_NOT_READY, NULL); /* harmless */
    EXPECT_OK(gw_work_error(work));
    EXPECT_OK(gw_work_attach(work, &freed[0], count_free));
    EXPECT(freed[0] == 0);
    EXPECT_REFUSED(gw_work_attach(NULL, &freed[1], count_free), "work is null");
    EXPECT(freed[1] == 1); /* also when attaching fails */
    EXPECT_OK(gw_gang_barrier(me->gang, NULL));
    EXPECT_OK(gw_work_wait(work, -1));
    EXPECT(y == 1 && freed[0] == 1);
    EXPECT_OK(gw_work_poll(work, &done));
    EXPECT(done == 1);
    EXPECT_OK(gw_work_attach(work, &freed[2], count_free)); /* done: freed at once */
    EXPECT(freed[2] == 1);
    EXPECT_REFUSED(gw_work_order(work, &x), "stream");
    EXPECT_REFUSED(gw_work_poll(work, NULL), "out_done is null");
    gw_work_release(work);
    EXPECT(freed[0] == 1 && freed[2] == 1);
  } else {
    EXPECT_OK(gw_gang_barrier(me->gang, NULL));
    EXPECT_OK(gw_gang_send(me->gang, &x, 1, GW_F32, 0, NULL));
  }
  /* Released in flight: neither cancelled nor waited for; what is attached is freed by a later call. */
  int32_t late = 0;
  if (me->index == 0) {
    y = 0;
    EXPECT_OK(gw_gang_recv_async(me->gang, &y, 1, GW_F32, 1, NULL, &work));
    EXPECT_OK(gw_work_attach(work, &late, count_free));
    gw_work_release(work);
    for (int i = 0; i < 4; ++i) EXPECT_OK(gw_gang_barrier(me->gang, NULL));
    EXPECT(late == 1 && y == 1);
  } else {
    EXPECT_OK(gw_gang_send(me->gang, &x, 1, GW_F32, 0, NULL));
    for (int i = 0; i < 4; ++i) EXPECT_OK(gw_gang_barrier(me->gang, NULL));
  }
}

static void work_ends(rank* me) {
  float x = 1, y = 0;
  int32_t done = -1;
  gw_work* work = NULL;
  if (me->index == 0) {
    EXPECT_OK(gw_gang_recv_async(me->gang, &y, 1, GW_F32, 1, NULL, &work));
    EXPECT_STATUS(gw_work_wait(work, 1), GW_E_NOT_READY, NULL);
    EXPECT_OK(gw_gang_abort(me->gang, "enough"));
    EXPECT_STATUS(gw_work_wait(work, -1), GW_E_ABORTED, "enough");
    EXPECT_STATUS(gw_work_poll(work, &done), GW_E_ABORTED, "enough");
    EXPECT_STATUS(gw_work_error(work), GW_E_ABORTED, "enough");
    gw_work_release(work);
  } else {
    EXPECT_STATUS(gw_gang_recv(me->gang, &x, 1, GW_F32, 0, NULL), GW_E_ABORTED, "enough");
    EXPECT_STATUS(gw_gang_async_error(me->gang), GW_E_ABORTED, "enough");
    EXPECT_STATUS(gw_gang_barrier(me->gang, NULL), GW_E_ABORTED, "enough"); /* the first error, ever after */
  }
}

static void abort_wakes_waiters_on_every_rank(void** state) {
  (void)state;
  run_ranks(2, work_ends, NULL);
  assert_refused(gw_gang_abort(NULL, "x"), "gang is null");
  assert_refused(gw_gang_async_error(NULL), "gang is null");
}

static void works_in_flight(void** state) {
  (void)state;
  run_ranks(2, works, NULL);
  /* The last handle of a rank goes with its gang, in whatever order: what is attached is freed all the same. */
  for (int gang_first = 0; gang_first < 2; ++gang_first) {
    gw_gang* gangs[2];
    gw_work* work = NULL;
    float y = 0;
    int32_t freed = 0;
    assert_ok(gw_gang_create_threads(2, NULL, gangs));
    assert_ok(gw_gang_recv_async(gangs[0], &y, 1, GW_F32, 1, NULL, &work));
    assert_ok(gw_work_attach(work, &freed, count_free));
    if (gang_first) gw_gang_release(gangs[0]);
    gw_work_release(work);
    if (!gang_first) gw_gang_release(gangs[0]);
    assert_int_equal(freed, 1);
    gw_gang_release(gangs[1]);
  }
}

/* --- failure
 * -------------------------------------------------------------------------------------------------------- */

static void mismatched(rank* me) {
  float x[8] = {0}, y[8];
  const gw_status status = me->index == 0 ? gw_gang_all_reduce(me->gang, x, y, 3, GW_F32, GW_SUM, NULL)
                                          : gw_gang_all_gather(me->gang, x, y, 2, GW_F32, NULL);
  EXPECT(status == GW_E_MISMATCH);
  const char* text = last_error().message;
  EXPECT(strstr(text, "all_reduce") != NULL && strstr(text, "all_gather") != NULL);
  EXPECT(strstr(text, "3") != NULL && strstr(text, "2") != NULL);
}

static void different_calls_are_a_mismatch_on_every_rank(void** state) {
  (void)state;
  run_ranks(2, mismatched, NULL);
}

static void shrinks(rank* me) {
  gw_gang* gang = NULL;
  const int32_t survivors[2] = {0, 2}, outside[1] = {9};
  if (me->index == 1) {
    EXPECT_OK(gw_gang_abort(me->gang, "rank 1 gives up"));
    return;
  }
  EXPECT_STATUS(gw_gang_barrier(me->gang, NULL), GW_E_ABORTED, "gives up");
  EXPECT_REFUSED(gw_gang_shrink(me->gang, outside, 1, &gang), "9");
  EXPECT_REFUSED(gw_gang_shrink(me->gang, NULL, 2, &gang), "survivors is null");
  EXPECT_OK(gw_gang_shrink(me->gang, survivors, 2, &gang));
  EXPECT(gw_gang_size(gang) == 2 && gw_gang_rank(gang) == me->index / 2);
  double sum = 0;
  EXPECT_OK(gw_gang_all_sum(gang, 1, &sum));
  EXPECT(sum == 2);
  gw_gang_release(gang);
}

static void survivors_shrink_to_a_new_gang(void** state) {
  (void)state;
  run_ranks(3, shrinks, NULL);
  gw_gang* gang = NULL;
  const int32_t first = 0;
  assert_refused(gw_gang_shrink(NULL, &first, 1, &gang), "gang is null");
  gw_gang* own = alone();
  assert_refused(gw_gang_shrink(own, &first, 1, NULL), "out_gang is null");
  gw_gang_release(own);
}

static void times_out(rank* me) {
  if (me->index == 1) return;
  EXPECT_STATUS(gw_gang_shutdown(me->gang, 50), GW_E_TIMEOUT, NULL);
}

static void shutdown_has_its_own_time_limit(void** state) {
  (void)state;
  run_ranks(2, times_out, NULL);
  assert_refused(gw_gang_shutdown(NULL, 0), "gang is null");
}

/* --- fake
 * -----------------------------------------------------------------------------------------------------------
 */

static void fake_gang_acts_as_if_all_held_the_same(void** state) {
  (void)state;
  gw_gang* gang = NULL;
  assert_refused(gw_gang_create_fake(0, 0, NULL, &gang), "size is 0");
  assert_refused(gw_gang_create_fake(3, 3, NULL, &gang), "rank 3 is outside [0, 3)");
  gw_gang_options meta;
  gw_gang_options_init(&meta, sizeof meta);
  meta.device = "meta";
  assert_refused(gw_gang_create_fake(1, 3, &meta, &gang), "meta");
  assert_refused(gw_gang_create_fake(5, 0, &meta, &gang), "size is 0"); /* in this order */
  assert_refused(gw_gang_create_fake(5, 3, &meta, &gang), "rank 5");
  assert_refused(gw_gang_create_fake(0, 1, NULL, NULL), "out_gang is null");
  assert_ok(gw_gang_create_fake(1, 3, NULL, &gang));
  assert_string_equal(gw_gang_engine(gang), "fake");
  float x[3] = {1, 2, 3}, y[9] = {0};
  assert_ok(gw_gang_all_reduce(gang, x, y, 3, GW_F32, GW_SUM, NULL));
  assert_true(y[0] == 3 && y[2] == 9);
  assert_ok(gw_gang_all_reduce(gang, x, y, 3, GW_F32, GW_PRODUCT, NULL));
  assert_true(y[1] == 8 && y[2] == 27);
  assert_ok(gw_gang_all_reduce(gang, x, y, 3, GW_F32, GW_MEAN, NULL));
  assert_true(y[1] == 2);
  assert_ok(gw_gang_all_gather(gang, x, y, 3, GW_F32, NULL));
  assert_true(y[0] == 1 && y[3] == 1 && y[8] == 3);
  assert_ok(gw_gang_reduce_scatter(gang, x, y, 1, GW_F32, GW_SUM, NULL));
  assert_true(y[0] == 6);
  assert_ok(gw_gang_broadcast(gang, x, y, 3, GW_F32, 1, NULL));
  assert_refused(gw_gang_broadcast(gang, x, y, 3, GW_F32, 0, NULL), "0");
  gw_gang_release(gang);
}

/* --- memory and records of what happened
 * ----------------------------------------------------------------------------- */

static void memory(rank* me) {
  void *data = NULL, *again = NULL, *shared = NULL;
  EXPECT_OK(gw_gang_alloc(me->gang, 100, &data));
  EXPECT(((uintptr_t)data & 63) == 0);
  EXPECT_OK(gw_gang_alloc(me->gang, 0, &again));
  EXPECT(again != NULL && again != data);
  memset(data, 1, 100);
  EXPECT_OK(gw_gang_free(me->gang, data));
  EXPECT_REFUSED(gw_gang_free(me->gang, data), "not memory of gw_gang_alloc");
  EXPECT_OK(gw_gang_free(NULL, again)); /* by its address alone */
  EXPECT_OK(gw_gang_free(me->gang, NULL));
  EXPECT_OK(gw_gang_alloc_shared(me->gang, 8 * (size_t)me->size, &shared));
  ((int64_t*)shared)[me->index] = me->index + 1;
  EXPECT_OK(gw_gang_barrier(me->gang, NULL));
  for (int32_t i = 0; i < me->size; ++i) EXPECT(((int64_t*)shared)[i] == i + 1);
  EXPECT_OK(gw_gang_barrier(me->gang, NULL));
  EXPECT_OK(gw_gang_free(me->gang, shared));
  EXPECT_REFUSED(gw_gang_alloc(me->gang, 8, NULL), "out_data is null");
  EXPECT_REFUSED(gw_gang_alloc_shared(me->gang, 8, NULL), "out_data is null");
  EXPECT_STATUS(gw_gang_alloc(me->gang, (size_t)1 << 50, &data), GW_E_OUT_OF_MEMORY, "1125899906842624");
  EXPECT(data == NULL);
}

static void memory_of_the_gang(void** state) {
  (void)state;
  void* data = NULL;
  for (int32_t n = 1; n <= 3; ++n) run_ranks(n, memory, NULL);
  assert_refused(gw_gang_alloc(NULL, 8, &data), "gang is null");
  assert_refused(gw_gang_alloc_shared(NULL, 8, &data), "gang is null");
  /* It outlives its gang. */
  gw_gang* gangs[2];
  assert_ok(gw_gang_create_threads(2, NULL, gangs));
  assert_ok(gw_gang_alloc(gangs[1], 64, &data));
  for (int i = 0; i < 2; ++i) gw_gang_release(gangs[i]);
  memset(data, 7, 64);
  assert_ok(gw_gang_free(NULL, data));
}

static void looks_back(rank* me) {
  gw_gang_traffic before, after;
  gw_gang_traffic_init(&before, sizeof before);
  gw_gang_traffic_init(&after, sizeof after);
  float x[16] = {0}, y[16];
  EXPECT_OK(gw_gang_get_traffic(me->gang, &before));
  EXPECT_OK(gw_gang_all_reduce(me->gang, x, y, 16, GW_F32, GW_SUM, NULL));
  EXPECT_OK(gw_gang_get_traffic(me->gang, &after));
  EXPECT(after.calls == before.calls + 1);
  size_t length = 0;
  EXPECT_OK(gw_gang_flight_record(me->gang, NULL, 0, &length));
  EXPECT(length > 0);
  char* text = malloc(length + 1);
  const gw_status status = gw_gang_flight_record(me->gang, text, length + 1, NULL);
  const int named = status == GW_OK && strstr(text, "all_reduce") != NULL && strstr(text, "64 bytes") != NULL;
  free(text);
  EXPECT(named);
  EXPECT_REFUSED(gw_gang_get_traffic(me->gang, NULL), "traffic is null");
  EXPECT_REFUSED(gw_gang_flight_record(me->gang, NULL, 0, NULL), "null");
}

static void traffic_and_flight_record(void** state) {
  (void)state;
  run_ranks(2, looks_back, NULL);
  gw_gang_traffic traffic;
  gw_gang_traffic_init(&traffic, sizeof traffic);
  gw_gang_traffic_init(NULL, 0);
  size_t length;
  assert_refused(gw_gang_get_traffic(NULL, &traffic), "gang is null");
  assert_refused(gw_gang_flight_record(NULL, NULL, 0, &length), "gang is null");
  void* handle = &traffic;
  gw_gang* gang = alone();
  assert_refused_as(gw_gang_native_handle(gang, &handle), GW_E_NOT_SUPPORTED, "self");
  assert_null(handle);
  assert_refused(gw_gang_native_handle(gang, NULL), "out_handle is null");
  assert_refused(gw_gang_native_handle(NULL, &handle), "gang is null");
  gw_gang_release(gang);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(one_rank_without_an_environment),
                                     cmocka_unit_test(bad_options_are_refused),
                                     cmocka_unit_test(environment_is_checked),
                                     cmocka_unit_test(ids_are_random),
                                     cmocka_unit_test(ranks_meet_in_a_file_store),
                                     cmocka_unit_test(ranks_meet_in_the_callers_store),
                                     cmocka_unit_test(ranks_meet_by_an_id),
                                     cmocka_unit_test(store_callbacks_are_freed_once),
                                     cmocka_unit_test(sub_gangs_keep_the_lists_order),
                                     cmocka_unit_test(collectives_give_known_values),
                                     cmocka_unit_test(async_collectives_give_known_values),
                                     cmocka_unit_test(records_in_batches_and_with_counts),
                                     cmocka_unit_test(bad_collectives_are_refused),
                                     cmocka_unit_test(works_in_flight),
                                     cmocka_unit_test(abort_wakes_waiters_on_every_rank),
                                     cmocka_unit_test(different_calls_are_a_mismatch_on_every_rank),
                                     cmocka_unit_test(survivors_shrink_to_a_new_gang),
                                     cmocka_unit_test(shutdown_has_its_own_time_limit),
                                     cmocka_unit_test(fake_gang_acts_as_if_all_held_the_same),
                                     cmocka_unit_test(memory_of_the_gang),
                                     cmocka_unit_test(traffic_and_flight_record)};
  return cmocka_run_group_tests_name("capi_gang", tests, NULL, NULL);
}

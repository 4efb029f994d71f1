/* Where ranks meet: stores, the caller's own store, and ids. */
#include "own_store.h"

/* Two ranks of one process that meet by a store, as processes do. */
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
  creates = 1;
  m->status = gw_gang_create(&o, &gang);
  creates = 0;
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
  assert_int_equal(strays, 0);
  assert_int_equal(own.freed, 0);
  assert_ptr_equal(gw_store_retain(store), store);
  assert_null(gw_store_retain(NULL));
  gw_store_release(store);
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
  clear_store(&own);
}

/* Whatever a callback returns, creation fails with the caller's error, whose text has the call, the key and
 * the status. */
static void a_failing_store_is_the_callers_error(void** state) {
  (void)state;
  static const struct {
    const char *call, *text;
    int32_t rank;
  } cases[] = {
      {"put", "store: the caller's put of \"network/attempt\" returned 14 (IO): the shelf is full", 0},
      {"get", "store: the caller's get of \"network/attempt\" returned 77", 1}};
  for (size_t i = 0; i < 2; ++i) {
    own_store own = {.lock = PTHREAD_MUTEX_INITIALIZER, .failing = cases[i].call};
    gw_store_callbacks c = callbacks_of(&own);
    gw_store* store = NULL;
    assert_ok(gw_store_create_callbacks(&c, &store));
    meeting m = {.store = store, .rank = cases[i].rank};
    meet(&m);
    assert_int_equal(m.status, GW_E_CALLER);
    assert_string_equal(m.text, cases[i].text);
    gw_store_release(store);
    assert_int_equal(own.freed, 1);
    clear_store(&own);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(ranks_meet_in_a_file_store), cmocka_unit_test(ranks_meet_in_the_callers_store),
      cmocka_unit_test(ranks_meet_by_an_id), cmocka_unit_test(store_callbacks_are_freed_once),
      cmocka_unit_test(a_failing_store_is_the_callers_error)};
  return cmocka_run_group_tests_name("capi_gang_store", tests, NULL, NULL);
}

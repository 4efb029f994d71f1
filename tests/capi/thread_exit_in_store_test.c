/* A thread that ends in the caller's own store or allocator. The process goes on, and peers do not wait for
 * the thread. */
#include <unistd.h>

#include "own_store.h"

/* --- in a store --- */

typedef struct {
  gw_store* store;
  int32_t rank;
  const char* end_in; /* null: in no call */
  int end_at;         /* in which of these calls */
  gw_status status;   /* -1: the thread ended in the call */
  char text[400];
} joining;

static _Thread_local joining* own; /* the rank that this thread is */

static void end_in_call(const char* call) {
  if (own == NULL || own->end_in == NULL || strcmp(own->end_in, call) != 0) return;
  if (--own->end_at <= 0) pthread_exit(NULL); /* and in every later call */
}

static void* join_gang(void* argument) {
  joining* me = argument;
  gw_gang_options o;
  gw_gang_options_init(&o, sizeof o);
  o.rank = me->rank;
  o.size = 2;
  o.device = device_of(me->rank);
  o.store = me->store;
  o.timeout_ms = 1000;
  o.threads = 1;
  o.arena_bytes = (uint64_t)1 << 30;
  gw_gang* gang = NULL;
  own = me;
  me->status = -1;
  gw_status status = gw_gang_create(&o, &gang);
  own = NULL;
  if (status == GW_OK) status = gw_gang_barrier(gang, NULL);
  snprintf(me->text, sizeof me->text, "%s", last_error().message);
  gw_gang_release(gang);
  me->status = status;
  return NULL;
}

/* Two ranks that meet in one store. */
typedef struct {
  own_store shelf;
  gw_store* store;
  joining ranks[2];
  pthread_t threads[2];
  int ends; /* the rank that ends; -1: none */
} meeting;

static void start(meeting* m, int ends, const char* end_in, int end_at) {
  memset(m, 0, sizeof *m);
  pthread_mutex_init(&m->shelf.lock, NULL);
  m->shelf.before = end_in_call;
  m->ends = ends;
  gw_store_callbacks c = callbacks_of(&m->shelf);
  assert_ok(gw_store_create_callbacks(&c, &m->store));
  for (int r = 0; r < 2; ++r) {
    m->ranks[r] = (joining){.store = m->store, .rank = r};
    if (r == ends) m->ranks[r].end_in = end_in, m->ranks[r].end_at = end_at;
    assert_int_equal(pthread_create(&m->threads[r], NULL, join_gang, &m->ranks[r]), 0);
  }
}

static void finish(meeting* m) {
  for (int r = 0; r < 2; ++r) assert_int_equal(pthread_join(m->threads[r], NULL), 0);
  gw_store_release(m->store);
  assert_int_equal(m->shelf.freed, 1);
  clear_store(&m->shelf);
  const int alone = m->ends < 0;
  for (int r = 0; r < 2; ++r) {
    const gw_status status = m->ranks[r].status;
    const int missed = status == GW_E_TIMEOUT || status == GW_E_PEER_LOST || status == GW_E_ABORTED;
    if (alone ? status != GW_OK : r == m->ends ? status != -1 : !missed)
      fail_msg("rank %d ends in %s, rank %d: status %d: %s", m->ends,
               alone ? "nothing" : m->ranks[m->ends].end_in, r, status, m->ranks[r].text);
  }
}

static void the_end_of_a_thread_in_a_store_is_missed_by_the_deadline(void** state) {
  (void)state;
  static const struct {
    int rank;
    const char* call;
    int at;
  } ends[] = {{0, "put", 1}, {0, "put", 2}, {0, "get", 1},    {0, "remove", 1}, {1, "put", 1},
              {1, "get", 1}, {1, "get", 2}, {1, "remove", 1}, {-1, NULL, 0}};
  enum { kMeetings = sizeof ends / sizeof ends[0] };
  meeting meetings[kMeetings];
  for (int i = 0; i < kMeetings; ++i) start(&meetings[i], ends[i].rank, ends[i].call, ends[i].at);
  for (int i = 0; i < kMeetings; ++i) finish(&meetings[i]);
}

static gw_status ends_in_exchange(void* user, const void* input, size_t size, void* output) {
  (void)input, (void)size, (void)output;
  ++*(int*)user;
  pthread_exit(NULL);
}

static void* join_by_exchange(void* argument) {
  gw_gang_options o;
  gw_gang_options_init(&o, sizeof o);
  o.rank = 0;
  o.size = 2;
  o.device = test_device();
  o.all_gather = ends_in_exchange;
  o.user = argument;
  o.timeout_ms = 700;
  o.threads = 1;
  gw_gang* gang = NULL;
  gw_gang_create(&o, &gang);
  *(int*)argument = -1;
  return NULL;
}

static void a_thread_that_ends_in_an_exchange_calls_nothing_again(void** state) {
  (void)state;
  int calls = 0;
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, join_by_exchange, &calls), 0);
  assert_int_equal(pthread_join(thread, NULL), 0);
  assert_int_equal(calls, 1);
}

/* --- in an allocator --- */

/* The thread ends in this allocation, counted from now; 0: never. */
static _Thread_local int blocks_left;

static void* ending_allocate(void* user, size_t bytes, size_t alignment) {
  (void)user;
  if (blocks_left > 0 && --blocks_left == 0) pthread_exit(NULL);
  return aligned_alloc(alignment, bytes);
}
static void plain_deallocate(void* user, void* data, size_t bytes) {
  (void)user, (void)bytes;
  free(data);
}

typedef struct {
  gw_gang* gang; /* null: the rank is alone */
  int blocks;
  gw_gangs* gangs; /* the results, which outlive the thread */
  gw_module* model;
  gw_optimizer* optimizer;
  gw_status status;
  char text[400];
} trainee;

static gw_status train_once(trainee* me) {
  const gw_decoder_options o = small_llama();
  gw_status status = me->gang == NULL ? GW_OK : gw_gangs_create(me->gang, NULL, &me->gangs);
  if (status == GW_OK) status = gw_decoder_create(&o, &me->model);
  if (status == GW_OK) status = gw_parallelize(me->model, me->gangs, NULL);
  if (status == GW_OK) status = gw_adamw_create(me->model, NULL, &me->optimizer);
  small_batch b;
  fill_batch(&b, 2, 0);
  if (status == GW_OK) status = gw_train_step(me->model, me->optimizer, &b.batch, NULL, NULL, NULL);
  return status;
}

static void* train_in_thread(void* argument) {
  trainee* me = argument;
  blocks_left = me->blocks;
  me->status = -1;
  const gw_status status = train_once(me);
  blocks_left = 0;
  snprintf(me->text, sizeof me->text, "%s", last_error().message);
  me->status = status;
  return NULL;
}

/* The last of `ranks` ranks ends in its allocation number `block`. Returns 0 if the rank made fewer. */
static int train_until_block(int ranks, int block) {
  trainee all[2];
  pthread_t threads[2];
  gw_gang* gangs[2] = {NULL, NULL};
  gw_gang_options options;
  gw_gang_options_init(&options, sizeof options);
  options.timeout_ms = 60000;
  options.threads = 1;
  options.arena_bytes = (uint64_t)1 << 30;
  if (ranks > 1) assert_ok(gw_gang_create_threads(ranks, &options, gangs));
  for (int r = 0; r < ranks; ++r) {
    all[r] = (trainee){.gang = gangs[r], .blocks = r == ranks - 1 ? block : 0};
    assert_int_equal(pthread_create(&threads[r], NULL, train_in_thread, &all[r]), 0);
  }
  for (int r = 0; r < ranks; ++r) assert_int_equal(pthread_join(threads[r], NULL), 0);
  for (int r = 0; r < ranks; ++r) {
    gw_optimizer_release(all[r].optimizer);
    gw_module_release(all[r].model);
    gw_gangs_release(all[r].gangs);
  }
  const int ended = all[ranks - 1].status == -1;
  for (int r = 0; r < ranks; ++r) {
    const int told = all[r].status == GW_E_ABORTED || all[r].status == GW_E_PEER_LOST;
    const int right = !ended ? all[r].status == GW_OK : r == ranks - 1 || told;
    if (!right)
      fail_msg("block %d, rank %d of %d: status %d: %s", block, r, ranks, all[r].status, all[r].text);
    gw_gang_release(gangs[r]);
  }
  return ended;
}

static void the_end_of_a_thread_in_any_block_of_an_allocator_is_told_to_peers(void** state) {
  (void)state;
  SKIP_ON_GPUS("training on GPUs takes no block of the host's allocator");
  gw_allocator a;
  gw_allocator_init(&a, sizeof a);
  a.allocate = ending_allocate;
  a.deallocate = plain_deallocate;
  assert_ok(gw_allocator_set(&a));
  for (int ranks = 1; ranks <= 2; ++ranks) {
    int block = 1;
    while (train_until_block(ranks, block)) ++block;
    assert_in_range(block, 5, 1000);
  }
  assert_ok(gw_allocator_set(NULL));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_end_of_a_thread_in_a_store_is_missed_by_the_deadline),
      cmocka_unit_test(a_thread_that_ends_in_an_exchange_calls_nothing_again),
      cmocka_unit_test(the_end_of_a_thread_in_any_block_of_an_allocator_is_told_to_peers)};
  return cmocka_run_group_tests_name("capi_thread_exit_in_store", tests, NULL, NULL);
}

/* Start-up with the caller's own all-gather: ranks that are threads, and processes with pipes between
 * them. */
#include "testing.h"

#include <sys/wait.h>
#include <unistd.h>

enum { kRanks = 3, kMostBytes = 1024 };

/* An all-gather among threads. */
typedef struct exchange {
  pthread_barrier_t filled, read;
  char records[kRanks][kMostBytes];
} exchange;

/* One rank: how it takes part, and the result. */
typedef struct rank_state {
  exchange* exchange; /* null: pipes */
  int32_t rank, calls, frees, swaps;
  gw_status returns;
  int to[kRanks], from[kRanks]; /* pipes with rank 0 */
  gw_status status;
  double sum;
  char text[600];
} rank_state;

static gw_status gather_of_threads(void* user, const void* input, size_t size, void* output) {
  rank_state* const s = user;
  ++s->calls;
  if (s->returns != GW_OK) return gw_error_set("the switchboard is closed"), s->returns;
  if (size > kMostBytes) return GW_E_INTERNAL;
  memcpy(s->exchange->records[s->rank], input, size);
  pthread_barrier_wait(&s->exchange->filled);
  for (int r = 0; r < kRanks; ++r) {
    const int from = s->swaps && r > 0 ? kRanks - r : r; /* 0, 2, 1 */
    memcpy((char*)output + (size_t)r * size, s->exchange->records[from], size);
  }
  pthread_barrier_wait(&s->exchange->read);
  return GW_OK;
}

static int all_bytes(int file, void* bytes, size_t size, int writes) {
  for (size_t done = 0; done < size;) {
    const ssize_t n =
        writes ? write(file, (char*)bytes + done, size - done) : read(file, (char*)bytes + done, size - done);
    if (n <= 0) return 0;
    done += (size_t)n;
  }
  return 1;
}

/* An all-gather by way of rank 0. */
static gw_status gather_of_processes(void* user, const void* input, size_t size, void* output) {
  rank_state* const s = user;
  const size_t all = (size_t)kRanks * size;
  ++s->calls;
  memcpy((char*)output + (size_t)s->rank * size, input, size);
  if (s->rank != 0)
    return all_bytes(s->to[0], (char*)output + (size_t)s->rank * size, size, 1) &&
                   all_bytes(s->from[0], output, all, 0)
               ? GW_OK
               : GW_E_IO;
  for (int r = 1; r < kRanks; ++r)
    if (!all_bytes(s->from[r], (char*)output + (size_t)r * size, size, 0)) return GW_E_IO;
  for (int r = 1; r < kRanks; ++r)
    if (!all_bytes(s->to[r], output, all, 1)) return GW_E_IO;
  return GW_OK;
}

static void count_rank_free(void* user) { ++((rank_state*)user)->frees; }

static gw_gang_options options_of(rank_state* s) {
  gw_gang_options o;
  gw_gang_options_init(&o, sizeof o);
  o.device = device_of(s->rank);
  o.rank = s->rank;
  o.size = kRanks;
  o.timeout_ms = 30000;
  o.threads = 1;
  o.arena_bytes = (uint64_t)1 << 30;
  o.all_gather = s->exchange != NULL ? gather_of_threads : gather_of_processes;
  o.user = s;
  o.free_user = count_rank_free;
  return o;
}

static void create_with(rank_state* s, const gw_gang_options* o) {
  gw_gang* gang = NULL;
  s->status = gw_gang_create(o, &gang);
  snprintf(s->text, sizeof s->text, "%s", last_error().message);
  if (s->status == GW_OK) s->status = gw_gang_all_sum(gang, s->rank + 1, &s->sum);
  if (s->status == GW_OK) s->status = gw_gang_barrier(gang, NULL); /* on the ranks' devices */
  if (s->status == GW_OK) s->status = gw_gang_shutdown(gang, -1);
  gw_gang_release(gang);
}

static void* join(void* user) {
  rank_state* const s = user;
  const gw_gang_options o = options_of(s);
  create_with(s, &o);
  return NULL;
}
static void* join_with_a_bad_option(void* user) {
  rank_state* const s = user;
  gw_gang_options o = options_of(s);
  if (s->rank != 1) o.timeout_ms = -s->rank - 7;
  create_with(s, &o);
  return NULL;
}
/* Options that are refused only when the rank is made. */
static void* join_without_a_device(void* user) {
  rank_state* const s = user;
  gw_gang_options o = options_of(s);
  if (s->rank == 1) o.device = missing_device();
  if (s->rank == 2) o.engine = "nccl";
  create_with(s, &o);
  return NULL;
}
/* An extension that this library does not know. */
static void* join_with_an_unknown_extension(void* user) {
  rank_state* const s = user;
  const gw_ext extension = {7, 0, NULL};
  gw_gang_options o = options_of(s);
  if (s->rank == 1) o.next = &extension;
  create_with(s, &o);
  return NULL;
}
static void* join_with_an_unknown_field(void* user) {
  rank_state* const s = user;
  struct {
    gw_gang_options known;
    uint64_t unknown;
  } later = {options_of(s), 1};
  if (s->rank == 2) later.known.struct_size = sizeof later;
  create_with(s, &later.known);
  return NULL;
}
static void* join_without_a_place_for_the_gang(void* user) {
  rank_state* const s = user;
  const gw_gang_options o = options_of(s);
  if (s->rank == 2) {
    s->status = gw_gang_create(&o, NULL);
    snprintf(s->text, sizeof s->text, "%s", last_error().message);
  } else {
    create_with(s, &o);
  }
  return NULL;
}

/* Runs each rank on a thread. Each callback has then been called, and its user freed, once. */
static void run_all(rank_state* ranks, void* (*run)(void*)) {
  exchange t;
  pthread_t threads[kRanks];
  assert_int_equal(pthread_barrier_init(&t.filled, NULL, kRanks), 0);
  assert_int_equal(pthread_barrier_init(&t.read, NULL, kRanks), 0);
  for (int32_t r = 0; r < kRanks; ++r) {
    ranks[r].exchange = &t;
    ranks[r].rank = r;
    assert_int_equal(pthread_create(&threads[r], NULL, run, &ranks[r]), 0);
  }
  for (int32_t r = 0; r < kRanks; ++r) pthread_join(threads[r], NULL);
  for (int32_t r = 0; r < kRanks; ++r) {
    assert_int_equal(ranks[r].calls, 1);
    assert_int_equal(ranks[r].frees, 1);
  }
  pthread_barrier_destroy(&t.filled);
  pthread_barrier_destroy(&t.read);
}

static void all_are_refused(const rank_state* ranks, gw_status status, const char* part) {
  for (int32_t r = 0; r < kRanks; ++r) {
    if (ranks[r].status != status || strstr(ranks[r].text, part) == NULL)
      fail_msg("rank %d: %s: %s", r, gw_status_name(ranks[r].status), ranks[r].text);
  }
}

static void threads_meet_by_their_own_all_gather(void** state) {
  (void)state;
  rank_state ranks[kRanks] = {{0}};
  run_all(ranks, join);
  for (int32_t r = 0; r < kRanks; ++r) {
    if (ranks[r].status != GW_OK) fail_msg("rank %d: %s", r, ranks[r].text);
    assert_true(ranks[r].sum == 6);
  }
}

static void refusals_are_agreed_through_the_callers_all_gather(void** state) {
  (void)state;
  rank_state ranks[kRanks] = {{0}}, again[kRanks] = {{0}}, swapped[kRanks] = {{0}}, closed[kRanks] = {{0}},
             poor[kRanks] = {{0}}, extended[kRanks] = {{0}}, later[kRanks] = {{0}};
  run_all(ranks, join_with_a_bad_option); /* of two refusals the lowest rank's counts */
  all_are_refused(ranks, GW_E_INVALID_ARGUMENT, "options.timeout_ms is -7");
  run_all(again, join_without_a_place_for_the_gang);
  all_are_refused(again, GW_E_INVALID_ARGUMENT, "out_gang is null");
  run_all(poor, join_without_a_device);
  all_are_refused(poor, missing_code(), missing_device());
  run_all(extended, join_with_an_unknown_extension);
  all_are_refused(extended, GW_E_NOT_SUPPORTED, "options.next holds an extension of kind 7");
  run_all(later, join_with_an_unknown_field);
  all_are_refused(later, GW_E_NOT_SUPPORTED, "options sets a field at byte ");
  for (int32_t r = 0; r < kRanks; ++r) swapped[r].swaps = 1;
  run_all(swapped, join);
  all_are_refused(swapped, GW_E_INVALID_ARGUMENT,
                  "gang: its all_gather callback gave rank 1 of 3 the record of rank 2 of 3");
  for (int32_t r = 0; r < kRanks; ++r) closed[r].returns = GW_E_NOT_READY;
  run_all(closed, join);
  all_are_refused(closed, GW_E_NOT_READY,
                  "gang: its all_gather callback returned 9 (NOT_READY): the switchboard is closed");
}

static void only_gw_gang_create_takes_an_all_gather(void** state) {
  (void)state;
  exchange t;
  rank_state s = {.exchange = &t, .returns = GW_E_INTERNAL};
  gw_gang* gangs[2] = {NULL, NULL};
  gw_gang_options o = options_of(&s);
  assert_refused(gw_gang_create_threads(2, &o, gangs), "all_gather is for gw_gang_create");
  assert_refused(gw_gang_create_fake(0, 2, &o, gangs), "all_gather is for gw_gang_create");
  o.rank = -1;
  o.size = 0;
  assert_refused(gw_gang_create(&o, gangs), "an all_gather but no rank and size");
  assert_null(gangs[0]);
  assert_int_equal(s.frees, 3);
  assert_int_equal(s.calls, 0);
  /* A store and an id come before the all-gather. */
  o = options_of(&s);
  o.id = "short";
  o.id_size = 5;
  assert_refused(gw_gang_create(&o, gangs), "id_size is 5");
  assert_int_equal(s.calls, 0);
  assert_int_equal(s.frees, 4);
  /* A gang of one rank calls it too. */
  o = options_of(&s);
  o.size = 1;
  assert_refused_as(gw_gang_create(&o, gangs), GW_E_INTERNAL, "the switchboard is closed");
  assert_int_equal(s.calls, 1);
}

static void processes_meet_by_their_own_all_gather(void** state) {
  (void)state;
  rank_state ranks[kRanks] = {{0}};
  pid_t pids[kRanks];
  for (int32_t r = 1; r < kRanks; ++r) {
    int up[2], down[2];
    assert_int_equal(pipe(up), 0);
    assert_int_equal(pipe(down), 0);
    ranks[r].to[0] = up[1];
    ranks[0].from[r] = up[0];
    ranks[0].to[r] = down[1];
    ranks[r].from[0] = down[0];
  }
  for (int32_t r = 0; r < kRanks; ++r) {
    ranks[r].rank = r;
    pids[r] = fork();
    assert_true(pids[r] >= 0);
    if (pids[r] != 0) continue;
    alarm(100);
    join(&ranks[r]);
    const int well =
        ranks[r].status == GW_OK && ranks[r].sum == 6 && ranks[r].calls == 1 && ranks[r].frees == 1;
    if (!well) fprintf(stderr, "rank %d: %s: %s\n", (int)r, gw_status_name(ranks[r].status), ranks[r].text);
    _exit(well ? 0 : 1);
  }
  for (int32_t r = 0; r < kRanks; ++r) {
    int status = -1;
    assert_int_equal(waitpid(pids[r], &status, 0), pids[r]);
    assert_int_equal(status, 0);
  }
  for (int32_t r = 1; r < kRanks; ++r) {
    close(ranks[r].to[0]);
    close(ranks[r].from[0]);
    close(ranks[0].to[r]);
    close(ranks[0].from[r]);
  }
}

int main(void) {
  /* The processes come first, because a forked child of a process that has made a gang can make none. */
  const struct CMUnitTest tests[] = {cmocka_unit_test(processes_meet_by_their_own_all_gather),
                                     cmocka_unit_test(threads_meet_by_their_own_all_gather),
                                     cmocka_unit_test(refusals_are_agreed_through_the_callers_all_gather),
                                     cmocka_unit_test(only_gw_gang_create_takes_an_all_gather)};
  return cmocka_run_group_tests_name("capi_gang_gather", tests, NULL, NULL);
}

/* What the C tests share: checks of statuses with their texts, and ranks that are threads.
 *
 * Assertions of CMocka work only on the main thread. A rank's function uses EXPECT instead, which notes the
 * first failure, breaks the gang so that peers do not wait, and returns from the function. */
#ifndef GANGWAY_TESTS_CAPI_TESTING_H
#define GANGWAY_TESTS_CAPI_TESTING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "small.h"

/* Returns an empty text if the status and its text are as wanted, otherwise what is wrong. `part` must occur
 * in the text. */
static MAYBE_UNUSED const char* wrong_status(gw_status status, gw_status wanted, const char* part) {
  static _Thread_local char text[600];
  const gw_error_info info = last_error();
  text[0] = '\0';
  if (status != wanted)
    snprintf(text, sizeof text, "status is %s (%s), wanted is %s", gw_status_name(status), info.message,
             gw_status_name(wanted));
  else if (info.code != wanted)
    snprintf(text, sizeof text, "the last error is %s, the status %s", gw_status_name(info.code),
             gw_status_name(status));
  else if (wanted != GW_OK && info.message[0] == '\0')
    snprintf(text, sizeof text, "%s has no text", gw_status_name(status));
  else if (part != NULL && strlen(part) <= 3)
    snprintf(text, sizeof text, "the text is \"%s\"; \"%s\" is too short to recognise it", info.message,
             part);
  else if (part != NULL && strstr(info.message, part) == NULL)
    snprintf(text, sizeof text, "the text is \"%s\", without \"%s\"", info.message, part);
  return text;
}

#define assert_refused_as(call, wanted, part)                    \
  do {                                                           \
    const char* wrong_ = wrong_status((call), (wanted), (part)); \
    if (wrong_[0] != '\0') fail_msg("%s: %s", #call, wrong_);    \
  } while (0)
#define assert_ok(call) assert_refused_as(call, GW_OK, NULL)
#define assert_refused(call, part) assert_refused_as(call, GW_E_INVALID_ARGUMENT, part)

/* ctest runs some suites for GPUs too; GANGWAY_TEST_DEVICE then names the device. */
static MAYBE_UNUSED const char* test_device(void) {
  const char* const wanted = getenv("GANGWAY_TEST_DEVICE");
  return wanted == NULL ? "cpu" : wanted;
}
static MAYBE_UNUSED int on_gpus(const char* device) { return strncmp(device, "cuda", 4) == 0; }
/* The device of a rank that has a device of its own. */
static MAYBE_UNUSED const char* device_of(int32_t rank) {
  static const char* const gpus[] = {"cuda:0", "cuda:1", "cuda:2", "cuda:3"};
  return on_gpus(test_device()) ? gpus[rank] : test_device();
}
/* A device that this machine does not have. */
static MAYBE_UNUSED const char* missing_device(void) { return on_gpus(test_device()) ? "cuda:99" : "cuda"; }
static MAYBE_UNUSED gw_status missing_code(void) {
  return on_gpus(test_device()) ? GW_E_INVALID_ARGUMENT : GW_E_NOT_SUPPORTED;
}
/* The number of ranks in the larger tests. Software GPUs are slow. */
static MAYBE_UNUSED int32_t most_ranks(void) { return on_gpus(test_device()) ? 2 : 3; }

/* CMocka sets a handler of SIGSEGV for each test, with this function. The software GPU needs SIGSEGV to keep
 * the host from its memory, and its streams run across tests, so it keeps its own handler. */
__attribute__((visibility("default"))) void (*signal(int number, void (*handler)(int)))(int) {
  struct sigaction wanted, before;
  memset(&wanted, 0, sizeof wanted);
  wanted.sa_handler = handler;
  wanted.sa_flags = SA_RESTART;
  if (number == SIGSEGV && getenv("GANGWAY_MODULES") != NULL) return SIG_DFL;
  return sigaction(number, &wanted, &before) == 0 ? before.sa_handler : SIG_ERR;
}

static MAYBE_UNUSED gw_gang* alone(void) {
  gw_gang* gang = NULL;
  gw_gang_options options;
  gw_gang_options_init(&options, sizeof options);
  options.device = test_device();
  if (!on_gpus(options.device)) options.device = NULL;
  assert_ok(gw_gang_create(options.device == NULL ? NULL : &options, &gang));
  return gang;
}

/* Makes two root gangs on the test's device, for a test that acts for both ranks or starts a thread for
 * each. */
static MAYBE_UNUSED void two_gangs(gw_gang* gangs[2]) {
  gw_gang_options options;
  gw_gang_options_init(&options, sizeof options);
  options.device = test_device();
  options.timeout_ms = 60000;
  options.threads = 1;
  options.arena_bytes = (uint64_t)1 << 30;
  assert_ok(gw_gang_create_threads(2, &options, gangs));
}

/* A test that does not run on GPUs counts as skipped there. */
#define SKIP_ON_GPUS(reason)                    \
  do {                                          \
    if (on_gpus(test_device())) {               \
      fprintf(stderr, "skipped: %s\n", reason); \
      skip();                                   \
    }                                           \
  } while (0)

/* test_on_device(f) runs f. Calls with null gangs mean one rank on the test's device. */
typedef struct device_test {
  CMUnitTestFunction run;
} device_test;
static MAYBE_UNUSED void on_test_device(void** state) {
  const device_test test = *(const device_test*)*state;
  gw_gangs* gangs = NULL;
  if (!on_gpus(test_device())) return test.run(state);
  gw_gang* gang = alone();
  assert_ok(gw_gangs_create(gang, NULL, &gangs));
  gw_gang_release(gang);
  assert_ok(gw_gangs_push_current(gangs));
  test.run(state);
  assert_ok(gw_gangs_pop_current(gangs));
  gw_gangs_release(gangs);
}
#define test_on_device(function)                                       \
  {                                                                    \
#function, on_test_device, NULL, NULL, &(device_test) { function } \
  }

/* --- ranks --- */

typedef struct rank {
  int32_t index, size;
  gw_gang* gang;
  void* user;
  char failure[800];
} rank;

#define EXPECT(condition)                                                                                 \
  do {                                                                                                    \
    if (!(condition)) {                                                                                   \
      snprintf(me->failure, sizeof me->failure, "%s:%d: rank %d: %s", __FILE__, __LINE__, (int)me->index, \
               #condition);                                                                               \
      gw_gang_abort(me->gang, me->failure);                                                               \
      return;                                                                                             \
    }                                                                                                     \
  } while (0)
#define EXPECT_STATUS(call, wanted, part)                                                     \
  do {                                                                                        \
    const char* wrong_ = wrong_status((call), (wanted), (part));                              \
    if (wrong_[0] != '\0') {                                                                  \
      snprintf(me->failure, sizeof me->failure, "%s:%d: rank %d: %s: %s", __FILE__, __LINE__, \
               (int)me->index, #call, wrong_);                                                \
      gw_gang_abort(me->gang, me->failure);                                                   \
      return;                                                                                 \
    }                                                                                         \
  } while (0)
#define EXPECT_OK(call) EXPECT_STATUS(call, GW_OK, NULL)
#define EXPECT_REFUSED(call, part) EXPECT_STATUS(call, GW_E_INVALID_ARGUMENT, part)

typedef void (*rank_fn)(rank* me);
typedef struct rank_start {
  rank rank;
  rank_fn run;
} rank_start;

static MAYBE_UNUSED void* rank_main(void* argument) {
  rank_start* start = argument;
  start->run(&start->rank);
  return NULL;
}

/* Runs `run` on `count` threads, each with its own root gang on `device`. Fails the test with the first
 * rank's failure. */
static MAYBE_UNUSED void run_ranks_on(const char* device, int32_t count, rank_fn run, void* user) {
  enum { kMost = 8 };
  gw_gang* gangs[kMost];
  rank_start starts[kMost];
  pthread_t threads[kMost];
  gw_gang_options options;
  gw_gang_options_init(&options, sizeof options);
  options.device = device;
  options.timeout_ms = 20000;
  options.threads = 1;
  options.arena_bytes = (uint64_t)1 << 32;
  memset(starts, 0, sizeof starts);
  assert_ok(gw_gang_create_threads(count, &options, gangs));
  for (int32_t i = 0; i < count; ++i) {
    starts[i].rank.index = i;
    starts[i].rank.size = count;
    starts[i].rank.gang = gangs[i];
    starts[i].rank.user = user;
    starts[i].run = run;
    assert_int_equal(pthread_create(&threads[i], NULL, rank_main, &starts[i]), 0);
  }
  for (int32_t i = 0; i < count; ++i) pthread_join(threads[i], NULL);
  for (int32_t i = 0; i < count; ++i) gw_gang_release(gangs[i]);
  int32_t first = -1;
  for (int32_t i = 0; i < count; ++i) {
    if (starts[i].rank.failure[0] == '\0') continue;
    print_error("%s\n", starts[i].rank.failure);
    /* A rank that only got an abort comes after the rank that caused it. */
    if (first < 0 || (strstr(starts[first].rank.failure, "abort") != NULL &&
                      strstr(starts[i].rank.failure, "abort") == NULL))
      first = i;
  }
  if (first >= 0) fail_msg("%s", starts[first].rank.failure);
}

static MAYBE_UNUSED void run_ranks(int32_t count, rank_fn run, void* user) {
  run_ranks_on(test_device(), count, run, user);
}

/* A free function that counts its calls in an int. */
static MAYBE_UNUSED void count_free(void* user) { ++*(int*)user; }

#endif

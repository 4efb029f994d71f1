/* gw_gang_abort and gw_gangs_abort in a signal handler, which may interrupt any code of this library or of
 * the C library. */
#include <errno.h>
#include <signal.h>
#include <unistd.h>

#include "testing.h"

enum { kTimes = 40 };

static gw_gang* handled_gang;
static gw_gangs* handled_gangs;
static volatile sig_atomic_t handled_status;

static void on_signal(int signal) {
  (void)signal;
  const int before = errno;
  handled_status = handled_gang != NULL ? gw_gang_abort(handled_gang, "SIGUSR1 came")
                                        : gw_gangs_abort(handled_gangs, "SIGUSR1 came");
  if (errno != before) handled_status = GW_E_INTERNAL;
}

static void handle_signals(void) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigaction(SIGUSR1, &action, NULL);
  handled_status = GW_STATUS_NONE;
  alarm(100); /* a deadlock ends the test */
}

/* Rank 1, which only takes part. */
static void* takes_part(void* argument) {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, NULL);
  float x[64] = {0};
  while (gw_gang_all_reduce(argument, x, x, 64, GW_F32, GW_SUM, NULL) == GW_OK) {
  }
  return (void*)(intptr_t)last_error().code;
}

typedef struct sender {
  pthread_t to;
  int microseconds;
} sender;

static void* sends(void* argument) {
  const sender* s = argument;
  usleep((useconds_t)s->microseconds);
  pthread_kill(s->to, SIGUSR1);
  return NULL;
}

static pthread_t send_later(sender* s, int microseconds) {
  pthread_t thread;
  s->to = pthread_self();
  s->microseconds = microseconds;
  assert_int_equal(pthread_create(&thread, NULL, sends, s), 0);
  return thread;
}

static void a_handler_breaks_the_gang_whose_collective_it_interrupts(void** state) {
  (void)state;
  handle_signals();
  for (int i = 0; i < kTimes; ++i) {
    gw_gang* gangs[2];
    pthread_t peer;
    sender s;
    void* its = NULL;
    float x[64] = {0};
    two_gangs(gangs);
    handled_gang = gangs[0];
    assert_int_equal(pthread_create(&peer, NULL, takes_part, gangs[1]), 0);
    const pthread_t thread = send_later(&s, 500 + 97 * i);
    while (gw_gang_all_reduce(gangs[0], x, x, 64, GW_F32, GW_SUM, NULL) == GW_OK) {
    }
    assert_int_equal(last_error().code, GW_E_ABORTED);
    assert_non_null(strstr(last_error().message, "SIGUSR1 came"));
    pthread_join(peer, &its);
    pthread_join(thread, NULL);
    assert_int_equal(handled_status, GW_OK);
    assert_int_equal((intptr_t)its, GW_E_ABORTED);
    gw_gang_release(gangs[0]);
    gw_gang_release(gangs[1]);
  }
}

static void a_handler_may_interrupt_the_allocation_of_memory(void** state) {
  (void)state;
  handle_signals();
  for (int i = 0; i < kTimes; ++i) {
    sender s;
    assert_ok(gw_gang_create_fake(0, 1, NULL, &handled_gang));
    const pthread_t thread = send_later(&s, 200 + 31 * i);
    while (handled_status == GW_STATUS_NONE) free(malloc(64 + (size_t)i * 4096));
    pthread_join(thread, NULL);
    assert_int_equal(handled_status, GW_OK);
    assert_int_equal(gw_gang_barrier(handled_gang, NULL), GW_E_ABORTED);
    assert_int_equal(gw_gang_async_error(handled_gang), GW_E_ABORTED);
    gw_gang_release(handled_gang);
    handled_status = GW_STATUS_NONE;
  }
}

static void a_handler_breaks_all_gangs_of_a_mesh(void** state) {
  (void)state;
  handle_signals();
  for (int i = 0; i < kTimes; ++i) {
    sender s;
    gw_gang *dp = NULL, *tp = NULL;
    handled_gang = NULL;
    assert_ok(gw_gangs_create_fake(NULL, &handled_gangs));
    const pthread_t thread = send_later(&s, 200 + 31 * i);
    while (handled_status == GW_STATUS_NONE) { /* takes the lock of the gangs */
      gw_gang* gang = NULL;
      if (gw_gangs_get(handled_gangs, "dp", &gang) == GW_OK) gw_gang_release(gang);
    }
    pthread_join(thread, NULL);
    assert_int_equal(handled_status, GW_OK);
    assert_ok(gw_gangs_get(handled_gangs, "dp", &dp));
    assert_ok(gw_gangs_get(handled_gangs, "tp", &tp));
    assert_int_equal(gw_gang_barrier(dp, NULL), GW_E_ABORTED);
    assert_int_equal(gw_gang_barrier(tp, NULL), GW_E_ABORTED);
    gw_gang_release(dp);
    gw_gang_release(tp);
    gw_gangs_release(handled_gangs);
    handled_status = GW_STATUS_NONE;
  }
}

static void an_abort_keeps_the_last_error_and_cuts_its_reason(void** state) {
  (void)state;
  gw_gang* gang = NULL;
  char reason[2000];
  memset(reason, 'x', sizeof reason);
  reason[sizeof reason - 1] = '\0';
  assert_ok(gw_gang_create_fake(0, 1, NULL, &gang));
  assert_int_equal(gw_gang_barrier(NULL, NULL), GW_E_INVALID_ARGUMENT);
  assert_int_equal(gw_gang_abort(gang, reason), GW_OK);
  assert_int_equal(last_error().code, GW_E_INVALID_ARGUMENT);
  assert_int_equal(gw_gang_barrier(gang, NULL), GW_E_ABORTED);
  reason[511] = '\0';
  assert_non_null(strstr(last_error().message, reason));
  reason[511] = 'x';
  reason[512] = '\0';
  assert_null(strstr(last_error().message, reason));
  gw_gang_release(gang);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_handler_breaks_the_gang_whose_collective_it_interrupts),
      cmocka_unit_test(a_handler_may_interrupt_the_allocation_of_memory),
      cmocka_unit_test(a_handler_breaks_all_gangs_of_a_mesh),
      cmocka_unit_test(an_abort_keeps_the_last_error_and_cuts_its_reason),
  };
  return cmocka_run_group_tests_name("capi_signal", tests, NULL, NULL);
}

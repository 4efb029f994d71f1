/* A thread that ends, or is cancelled, in a callback: the process goes on, and peers are told. */
#include <gangway/gangway.h>
#include <pthread.h>
#include <unistd.h>

#include "testing.h"

typedef struct {
  gw_gang *gang;
  gw_interrupt_fn hook;
  gw_status status;
  int returned;
} caller;

static int32_t ends_thread(void *user) {
  (void)user;
  pthread_exit(NULL);
}

static int32_t cancels_and_stops(void *user) {
  (void)user;
  pthread_cancel(pthread_self());
  sleep(0); /* where it would act, if it did not wait for the call's end */
  return 1;
}

static void *call(void *argument) {
  caller *me = argument;
  float x[1000] = {0};
  gw_interrupt_set(me->hook, NULL, NULL);
  me->status = gw_gang_all_reduce(me->gang, x, x, 1000, GW_F32, GW_SUM, NULL);
  me->returned = 1;
  pthread_testcancel();
  return argument;
}

static void in_the_hook(gw_interrupt_fn hook, int returns, void *answer) {
  gw_gang *gangs[2] = {NULL, NULL};
  gw_gang_options options;
  gw_gang_options_init(&options, sizeof options);
  options.timeout_ms = 60000;
  options.threads = 1;
  assert_int_equal(gw_gang_create_threads(2, &options, gangs), GW_OK);
  caller me = {gangs[0], hook, GW_OK, 0};
  pthread_t thread;
  void *got = &me;
  assert_int_equal(pthread_create(&thread, NULL, call, &me), 0);
  assert_int_equal(pthread_join(thread, &got), 0);
  assert_ptr_equal(got, answer);
  assert_int_equal(me.returned, returns);
  if (returns) assert_int_equal(me.status, GW_E_CALLER);
  assert_int_equal(gw_gang_barrier(gangs[1], NULL), GW_E_ABORTED);
  for (int i = 0; i < 2; ++i) gw_gang_release(gangs[i]);
}

static void the_end_of_a_thread_in_the_interrupt_hook_unwinds(void **state) {
  (void)state;
  in_the_hook(ends_thread, 0, NULL);
}

static void cancelling_a_thread_waits_for_the_call_to_return(void **state) {
  (void)state;
  in_the_hook(cancels_and_stops, 1, PTHREAD_CANCELED);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(the_end_of_a_thread_in_the_interrupt_hook_unwinds),
                                     cmocka_unit_test(cancelling_a_thread_waits_for_the_call_to_return)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

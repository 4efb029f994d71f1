#include <sched.h>
#include <stdatomic.h>

#include "testing.h"

enum { kMicrobatches = 4, kRows = 3 };

/* Stage s multiplies by s + 2. Two tensors go to the next stage: the values, and ids without a gradient. */
static double factor(int32_t stage) { return stage + 2; }

/* Reads an input of the action on the host. */
static gw_status read_input(gw_pipeline* pipe, size_t index, void* to, size_t bytes) {
  gw_tensor *input = NULL, *copy = NULL;
  gw_view view;
  gw_status status = gw_pipeline_input(pipe, index, &input);
  if (status == GW_OK) status = gw_tensor_to_host(input, NULL, &copy);
  if (status == GW_OK) status = gw_tensor_view(copy, &view);
  if (status == GW_OK) memcpy(to, view.data, bytes);
  gw_tensor_release(copy);
  gw_tensor_release(input);
  return status;
}

static void halves_and_ids(rank* me) {
  gw_pipeline_options options;
  gw_pipeline_options_init(&options, sizeof options);
  options.schedule = me->user;
  options.microbatches = kMicrobatches;
  gw_pipeline* pipe = NULL;
  EXPECT_OK(gw_pipeline_create(me->gang, &options, &pipe));
  gw_pipeline_info info;
  gw_pipeline_info_init(&info, sizeof info);
  EXPECT_OK(gw_pipeline_describe(pipe, &info));
  EXPECT(info.stages == info.local_stages * me->size && info.microbatches == kMicrobatches);
  EXPECT(info.rank == me->index);
  int32_t owner = -1;
  EXPECT_OK(gw_pipeline_stage_rank(pipe, 0, &owner));
  EXPECT(owner == 0);
  EXPECT_REFUSED(gw_pipeline_stage_rank(pipe, info.stages, &owner), "outside [0, ");

  double product = 1, sum = 0;
  for (int32_t s = 0; s < info.stages; ++s) product *= factor(s);
  gw_pipeline_action action;
  gw_pipeline_action_init(&action, sizeof action);
  EXPECT_STATUS(gw_pipeline_done(pipe, NULL, 0, NULL), GW_E_INVALID_STATE, "next comes before done");
  for (int pass = 0; pass < 3; ++pass) {
    if (pass == 2) EXPECT_OK(gw_pipeline_set_training(pipe, 0));
    double loss = 0;
    int forwards = 0, others = 0;
    for (;;) {
      EXPECT_OK(gw_pipeline_next(pipe, NULL, &action));
      if (action.kind == GW_ACTION_END) break;
      EXPECT_STATUS(gw_pipeline_next(pipe, NULL, &action), GW_E_INVALID_STATE, "done comes before next");
      EXPECT(action.training == (pass != 2));
      const int64_t shape[] = {kRows + action.microbatch};
      double values[kRows + kMicrobatches], in[kRows + kMicrobatches];
      int64_t ids[kRows + kMicrobatches];
      gw_view out[2];
      EXPECT_OK(gw_view_set(&out[0], values, shape, 1, GW_F64));
      EXPECT_OK(gw_view_set(&out[1], ids, shape, 1, GW_I64));
      if (action.kind == GW_ACTION_FORWARD) {
        ++forwards;
        EXPECT(action.input_count == (action.first_stage ? 0u : 2u));
        for (int64_t i = 0; i < shape[0]; ++i) in[i] = 1, ids[i] = i;
        if (!action.first_stage) {
          EXPECT_OK(read_input(pipe, 0, in, (size_t)shape[0] * sizeof *in));
          EXPECT_OK(read_input(pipe, 1, ids, (size_t)shape[0] * sizeof *ids));
        }
        for (int64_t i = 0; i < shape[0]; ++i) {
          values[i] = in[i] * factor(action.stage);
          loss += action.last_stage ? values[i] * (double)ids[i] : 0;
        }
        EXPECT_OK(gw_pipeline_done(pipe, out, action.last_stage ? 0 : 2, NULL));
      } else if (action.kind == GW_ACTION_WEIGHT_GRADIENT) {
        ++others;
        EXPECT_OK(gw_pipeline_done(pipe, NULL, 0, NULL));
      } else {
        ++others;
        EXPECT(action.input_count == (action.last_stage ? 0u : 2u));
        EXPECT(action.last_stage || action.inputs[1].data == NULL);
        for (int64_t i = 0; i < shape[0]; ++i) in[i] = (double)i;
        if (!action.last_stage) EXPECT_OK(read_input(pipe, 0, in, (size_t)shape[0] * sizeof *in));
        for (int64_t i = 0; i < shape[0]; ++i) values[i] = factor(action.stage) * in[i];
        memset(&out[1], 0, sizeof out[1]);
        if (action.first_stage)
          for (int64_t i = 0; i < shape[0]; ++i) EXPECT(values[i] == product * (double)i);
        EXPECT_OK(gw_pipeline_done(pipe, out, action.first_stage ? 0 : 2, NULL));
      }
    }
    EXPECT(action.stage == 0 && action.microbatch == -1 && action.input_count == 0);
    EXPECT(forwards == kMicrobatches * info.local_stages && (others == 0) == (pass == 2));
    EXPECT_OK(gw_gang_all_sum(me->gang, loss, &sum));
    double want = 0;
    for (int m = 0; m < kMicrobatches; ++m)
      for (int64_t i = 0; i < kRows + m; ++i) want += product * (double)i;
    EXPECT(sum == want);
  }
  EXPECT(gw_pipeline_retain(pipe) == pipe);
  gw_pipeline_release(pipe);
  gw_pipeline_release(pipe);
}

static void stages_are_computed_action_by_action(void** state) {
  (void)state;
  char* const names[] = {"gpipe", "1f1b", "interleaved-1f1b", "zb-h1", "zbv", "dualpipev"};
  for (size_t i = 0; i < sizeof names / sizeof *names; ++i) run_ranks(2, halves_and_ids, names[i]);
}

static void refused(rank* me) {
  gw_pipeline_options options;
  gw_pipeline_options_init(&options, sizeof options);
  gw_pipeline* pipe = NULL;
  EXPECT_REFUSED(gw_pipeline_create(me->gang, &options, &pipe), "microbatches is 0");
  options.microbatches = 3;
  options.schedule = "fast";
  EXPECT_REFUSED(gw_pipeline_create(me->gang, &options, &pipe), "\"fast\" is unknown");
  options.schedule = NULL;
  options.schedule_csv = "0F0,0B0\n1F0,1B0\n";
  EXPECT_REFUSED(gw_pipeline_create(me->gang, &options, &pipe), "options.schedule_csv says it");
  options.microbatches = 0;
  options.schedule_csv = "0F0,0B0\n1B0,1F0\n";
  EXPECT_REFUSED(gw_pipeline_create(me->gang, &options, &pipe), "(1B0)");
  options.schedule_csv = "0F0,0B0\n1F0,1B0\n";
  EXPECT_OK(gw_pipeline_create(me->gang, &options, &pipe));
  gw_pipeline_release(pipe);
  options.schedule_csv = NULL;
  options.microbatches = 3 + me->index;
  EXPECT_STATUS(gw_pipeline_create(me->gang, &options, &pipe), GW_E_MISMATCH, NULL);
  EXPECT(pipe == NULL);
}
static void every_rank_gets_the_reason_of_a_refusal(void** state) {
  (void)state;
  run_ranks(2, refused, NULL);
}

/* UNSHARD, RESHARD and REDUCE_GRAD surround the computations of each stage. */
static void with_shard_actions(rank* me) {
  gw_pipeline_options options;
  gw_pipeline_options_init(&options, sizeof options);
  options.microbatches = 2;
  options.shard_actions = 1;
  gw_pipeline* pipe = NULL;
  EXPECT_OK(gw_pipeline_create(me->gang, &options, &pipe));
  gw_pipeline_action action;
  gw_pipeline_action_init(&action, sizeof action);
  float x[2] = {1, 2};
  gw_view out;
  const int64_t shape[] = {2};
  EXPECT_OK(gw_view_set(&out, x, shape, 1, GW_F32));
  int unsharded = 0, backwards = 0, reduced = 0;
  for (;;) {
    EXPECT_OK(gw_pipeline_next(pipe, NULL, &action));
    if (action.kind == GW_ACTION_END) break;
    const int forward = action.kind == GW_ACTION_FORWARD, backward = action.kind == GW_ACTION_BACKWARD;
    EXPECT(unsharded || !(forward || backward));
    if (action.kind == GW_ACTION_UNSHARD) unsharded = 1;
    if (action.kind == GW_ACTION_RESHARD) unsharded = 0;
    if (action.kind == GW_ACTION_REDUCE_GRAD) {
      EXPECT(backwards == 2);
      ++reduced;
    }
    backwards += backward;
    const int gives = (forward && !action.last_stage) || (backward && !action.first_stage);
    EXPECT_OK(gw_pipeline_done(pipe, &out, gives ? 1 : 0, NULL));
  }
  EXPECT(!unsharded && reduced == 1);
  gw_pipeline_release(pipe);
}
static void shard_actions_frame_the_stages(void** state) {
  (void)state;
  run_ranks(2, with_shard_actions, NULL);
}

static void released(rank* me) {
  gw_pipeline_options options;
  gw_pipeline_options_init(&options, sizeof options);
  options.microbatches = 2;
  gw_pipeline* pipe = NULL;
  EXPECT_OK(gw_pipeline_create(me->gang, &options, &pipe));
  gw_pipeline_action action;
  gw_pipeline_action_init(&action, sizeof action);
  EXPECT_OK(gw_gang_barrier(me->gang, NULL)); /* no rank leaves before all are here */
  if (me->index == 0) {
    EXPECT_OK(gw_pipeline_next(pipe, NULL, &action));
  } else {
    EXPECT_STATUS(gw_pipeline_next(pipe, NULL, &action), GW_E_ABORTED, "in the middle of a pass");
  }
  gw_pipeline_release(pipe);
  EXPECT_OK(gw_gang_barrier(me->gang, NULL)); /* the caller's gang goes on working */
}
static void a_rank_that_leaves_ends_the_pass_on_all_ranks(void** state) {
  (void)state;
  run_ranks(2, released, NULL);
}

/* The first rank destroys its pipeline after its first message. What it sent before may arrive or not. */
typedef struct parting {
  /* Whether it leaves before its peer asks for anything; otherwise it leaves while the peer waits for the
   * second message. */
  int before;
  /* The peer asks for the second message next; the peer waits for it; the first rank has left. */
  atomic_int second, asks, left;
} parting;
/* The interrupt hook, which waits call. */
static int32_t note_wait(void* user) {
  parting* const p = user;
  if (atomic_load(&p->second)) atomic_store(&p->asks, 1);
  return 0;
}
static void await(rank* me, atomic_int* flag) {
  while (!atomic_load(flag) && gw_gang_async_error(me->gang) == GW_OK) sched_yield();
}

static void released_after_a_message(rank* me) {
  parting* const p = me->user;
  gw_pipeline_options options;
  gw_pipeline_options_init(&options, sizeof options);
  options.microbatches = 2;
  gw_pipeline* pipe = NULL;
  gw_pipeline_action action;
  gw_pipeline_action_init(&action, sizeof action);
  const int64_t shape[] = {1 << 22}; /* large, so that it is on its way for long */
  float* const x = calloc((size_t)shape[0], sizeof *x);
  gw_view out;
  EXPECT_OK(gw_view_set(&out, x, shape, 1, GW_F32));
  EXPECT_OK(gw_pipeline_create(me->gang, &options, &pipe));
  EXPECT_OK(gw_gang_barrier(me->gang, NULL));
  if (me->index == 0) {
    EXPECT_OK(gw_pipeline_next(pipe, NULL, &action));
    EXPECT_OK(gw_pipeline_done(pipe, &out, 1, NULL));
    EXPECT_OK(gw_pipeline_next(pipe, NULL, &action));
    if (!p->before) await(me, &p->asks);
    gw_pipeline_release(pipe);
    atomic_store(&p->left, 1);
  } else {
    EXPECT_OK(gw_interrupt_set(note_wait, p, NULL));
    if (p->before) await(me, &p->left);
    gw_status status = gw_pipeline_next(pipe, NULL, &action);
    while (status == GW_OK) {
      const int gives = action.kind == GW_ACTION_BACKWARD;
      atomic_store(&p->second, gives);
      status = gw_pipeline_done(pipe, &out, gives ? 1 : 0, NULL);
      if (status == GW_OK) status = gw_pipeline_next(pipe, NULL, &action);
    }
    EXPECT_STATUS(status, GW_E_ABORTED, "in the middle of a pass");
    EXPECT(p->before || atomic_load(&p->asks));
    EXPECT_OK(gw_interrupt_set(NULL, NULL, NULL));
    gw_pipeline_release(pipe);
  }
  free(x);
  EXPECT_OK(gw_gang_barrier(me->gang, NULL));
}
static void a_rank_that_leaves_after_a_message_ends_the_pass_that_a_peer_comes_to(void** state) {
  (void)state;
  parting p = {.before = 1};
  run_ranks(2, released_after_a_message, &p);
}
static void a_rank_that_leaves_after_a_message_ends_its_peers_wait_for_the_next(void** state) {
  (void)state;
  parting p = {.before = 0};
  run_ranks(2, released_after_a_message, &p);
}

/* The second rank's thread ends in its first forward. */
static void ends_in_its_forward(rank* me) {
  gw_pipeline_options options;
  gw_pipeline_options_init(&options, sizeof options);
  options.microbatches = 2;
  gw_pipeline* pipe = NULL;
  gw_pipeline_action action;
  gw_pipeline_action_init(&action, sizeof action);
  float x[1] = {1};
  gw_view out;
  EXPECT_OK(gw_view_set(&out, x, (int64_t[]){1}, 1, GW_F32));
  EXPECT_OK(gw_pipeline_create(me->gang, &options, &pipe));
  EXPECT_OK(gw_pipeline_next(pipe, NULL, &action));
  ((gw_pipeline**)me->user)[me->index] = pipe;
  if (me->index == 1) return;
  gw_status status = GW_OK;
  while (status == GW_OK) {
    status = gw_pipeline_done(pipe, &out, 1, NULL);
    if (status == GW_OK) status = gw_pipeline_next(pipe, NULL, &action);
  }
  EXPECT_STATUS(status, GW_E_PEER_LOST, "its thread ended");
}
static void a_thread_that_ends_in_a_pass_is_named(void** state) {
  (void)state;
  gw_pipeline* pipes[2] = {NULL, NULL};
  run_ranks(2, ends_in_its_forward, pipes);
  for (int i = 0; i < 2; ++i) gw_pipeline_release(pipes[i]);
}

/* The second of two ranks keeps its inputs over three passes with different values, and beyond the end of the
 * pipeline. */
enum { kHeldPasses = 3 };
static void holds_inputs(rank* me) {
  gw_pipeline_options options;
  gw_pipeline_options_init(&options, sizeof options);
  options.microbatches = kMicrobatches;
  gw_pipeline* pipe = NULL;
  EXPECT_OK(gw_pipeline_create(me->gang, &options, &pipe));
  gw_tensor* held[kHeldPasses * kMicrobatches] = {0};
  gw_tensor* none = NULL;
  for (int pass = 0; pass < kHeldPasses; ++pass) {
    gw_pipeline_action action;
    gw_pipeline_action_init(&action, sizeof action);
    for (;;) {
      EXPECT_OK(gw_pipeline_next(pipe, NULL, &action));
      if (action.kind == GW_ACTION_END) break;
      const int at = pass * kMicrobatches + action.microbatch;
      gw_pipeline_action again; /* is refused, and the action's inputs stay valid */
      gw_pipeline_action_init(&again, sizeof again);
      EXPECT_STATUS(gw_pipeline_next(pipe, NULL, &again), GW_E_INVALID_STATE, "done comes before next");
      EXPECT_REFUSED(gw_pipeline_input(pipe, action.input_count, &none), "inputs");
      double value[] = {at};
      gw_view out[2];
      EXPECT_OK(gw_view_set(&out[0], value, (int64_t[]){1}, 1, GW_F64));
      EXPECT_OK(gw_view_set(&out[1], (int64_t[]){at}, (int64_t[]){1}, 1, GW_I64));
      if (action.kind == GW_ACTION_BACKWARD && action.input_count == 2) {
        EXPECT_OK(gw_pipeline_input(pipe, 1, &none));
        EXPECT(none == NULL); /* ids have no gradient */
      }
      if (action.kind == GW_ACTION_FORWARD && !action.first_stage)
        EXPECT_OK(gw_pipeline_input(pipe, 0, &held[at]));
      if (action.kind == GW_ACTION_BACKWARD) memset(&out[1], 0, sizeof out[1]);
      const int sends = action.kind == GW_ACTION_FORWARD ? !action.last_stage : !action.first_stage;
      EXPECT_OK(gw_pipeline_done(pipe, out, sends ? 2 : 0, NULL));
    }
  }
  EXPECT_REFUSED(gw_pipeline_input(pipe, 0, &none), "index is 0, the action has 0 inputs");
  gw_pipeline_release(pipe);
  for (int i = 0; i < kHeldPasses * kMicrobatches && me->index == 1; ++i) {
    gw_view view;
    gw_tensor* copy = NULL;
    EXPECT_OK(gw_tensor_to_host(held[i], NULL, &copy));
    EXPECT_OK(gw_tensor_view(copy, &view));
    EXPECT(*(const double*)view.data == i);
    gw_tensor_release(copy);
    gw_tensor_release(held[i]);
  }
}
static void inputs_that_are_held_stay_as_they_are(void** state) {
  (void)state;
  run_ranks(2, holds_inputs, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      test_on_device(stages_are_computed_action_by_action),
      test_on_device(every_rank_gets_the_reason_of_a_refusal),
      test_on_device(shard_actions_frame_the_stages),
      test_on_device(a_rank_that_leaves_ends_the_pass_on_all_ranks),
      test_on_device(a_rank_that_leaves_after_a_message_ends_the_pass_that_a_peer_comes_to),
      test_on_device(a_rank_that_leaves_after_a_message_ends_its_peers_wait_for_the_next),
      test_on_device(a_thread_that_ends_in_a_pass_is_named),
      test_on_device(inputs_that_are_held_stay_as_they_are),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Releasing a frame changes no model: garbage collectors release frames at any moment, on any thread, and on
 * each rank at another time. */
#include "manual.h"

static const gw_strategy kStrategies[3] = {GW_FULL_SHARD, GW_SHARD_GRAD_OP, GW_NO_SHARD};

static void* release_frame(void* frame) {
  gw_frame_release(frame);
  return NULL;
}
/* Releases as a garbage collector with a thread of its own does. */
static int release_elsewhere(gw_frame** frame) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, release_frame, *frame) != 0) return 0;
  *frame = NULL;
  return pthread_join(thread, NULL) == 0;
}

/* Runs the forward of another frame, which then gets no backward. */
static gw_status begin_another(loop* l, gw_frame** out_frame) {
  gw_frame* const own = l->frame;
  l->frame = NULL;
  gw_status status = gw_frame_create(l->model, NULL, &l->frame);
  if (status == GW_OK) status = forward(l, 2);
  *out_frame = l->frame;
  l->frame = own;
  return status;
}

static double norm_of(const loop* l) {
  double norm = -1;
  return gw_clip_grad_norm(l->model, 1e9, 2, NULL, &norm) == GW_OK ? norm : -1;
}

/* user: the strategy. */
static void among_others(rank* me) {
  loop l;
  gw_frame* given_up = NULL;
  EXPECT_OK(set_up(me, *(const gw_strategy*)me->user, &l));
  const double want = norm_of_one(&l);
  EXPECT(want > 0);
  for (int released = 0; released < 2; ++released) {
    EXPECT_OK(forward(&l, 2));
    EXPECT_OK(backward(&l));
    EXPECT_OK(begin_another(&l, &given_up));
    EXPECT(norm_of(&l) == want);
    EXPECT_STATUS(gw_optimizer_step(l.opt, NULL, NULL, NULL), GW_E_INVALID_STATE, "awaits its backward");
    EXPECT_STATUS(gw_train_step(l.model, l.opt, &l.b.batch, NULL, NULL, NULL), GW_E_INVALID_STATE,
                  "awaits its backward");
    if (released)
      EXPECT(release_elsewhere(&given_up));
    else
      EXPECT_OK(gw_frame_reset(given_up));
    EXPECT(norm_of(&l) == want);
    EXPECT_OK(gw_zero_grad(l.model, NULL));
    EXPECT(norm_of_one(&l) == want);
    gw_frame_release(given_up);
  }
  EXPECT_OK(forward(&l, 2));
  EXPECT_OK(backward(&l));
  EXPECT_OK(begin_another(&l, &given_up));
  gw_frame_release(given_up);
  EXPECT_OK(gw_optimizer_step(l.opt, NULL, NULL, NULL));
  tear_down(&l);
}

static void a_given_up_forward_leaves_gradients_alone(void** state) {
  (void)state;
  for (int i = 0; i < 3; ++i) run_ranks(2, among_others, (void*)&kStrategies[i]);
}

/* user: the strategy. */
static void at_its_own_time(rank* me) {
  loop l;
  gw_frame* given_up = NULL;
  EXPECT_OK(set_up(me, *(const gw_strategy*)me->user, &l));
  const double want = norm_of_one(&l);
  EXPECT_OK(begin_another(&l, &given_up));
  if (me->index == 0) EXPECT(release_elsewhere(&given_up));
  EXPECT_OK(forward(&l, 2));
  EXPECT_OK(backward(&l));
  EXPECT(norm_of(&l) == want);
  EXPECT_STATUS(gw_optimizer_step(l.opt, NULL, NULL, NULL), GW_E_INVALID_STATE, "awaits its backward");
  if (me->index == 1) EXPECT(release_elsewhere(&given_up));
  EXPECT(norm_of(&l) == want);
  EXPECT_OK(gw_optimizer_step(l.opt, NULL, NULL, NULL));
  const double next = norm_of_one(&l);
  EXPECT_OK(begin_another(&l, &given_up));
  EXPECT(release_elsewhere(&given_up));
  EXPECT(norm_of_one(&l) == next);
  EXPECT_OK(gw_train_step(l.model, l.opt, &l.b.batch, NULL, NULL, NULL));
  tear_down(&l);
}

static void ranks_release_a_frame_each_at_its_own_time(void** state) {
  (void)state;
  for (int i = 0; i < 3; ++i) run_ranks(2, at_its_own_time, (void*)&kStrategies[i]);
}

/* y = child(x). A garbage collector releases a frame in the middle of the forward. */
typedef struct collected {
  gw_frame* frame;
} collected;
static gw_status same_shapes(void* user, gw_call* call) {
  (void)user;
  (void)call;
  return GW_OK;
}
static gw_status collecting_forward(void* user, gw_call* call) {
  collected* c = user;
  gw_frame_release(c->frame);
  c->frame = NULL;
  gw_view y;
  size_t count = 0;
  const gw_status status = gw_call_forward(call, 0, call->inputs, 1, &y, 1, &count);
  if (status == GW_OK) pass_on(&call->outputs[0], &y, call);
  return status;
}
static gw_status no_backward(void* user, gw_call* call) {
  (void)user;
  (void)call;
  return GW_OK;
}

static gw_status collecting_module(collected* c, gw_module** out_model) {
  gw_module* linear = NULL;
  gw_custom_options o;
  gw_custom_options_init(&o, sizeof o);
  o.shapes = same_shapes;
  o.forward = collecting_forward;
  o.backward_input = no_backward;
  o.user = c;
  gw_status status = gw_linear_create(4, 4, 0, &linear);
  o.children = &linear;
  o.child_count = 1;
  if (status == GW_OK) status = gw_custom_create(&o, out_model);
  gw_module_release(linear);
  return status;
}

static void in_mid_forward(rank* me) {
  collected c = {NULL};
  gw_gangs* gangs = NULL;
  gw_module* model = NULL;
  gw_frame* second = NULL;
  gw_tensor* out = NULL;
  size_t count = 0;
  float x[4] = {1, 2, 3, 4};
  const int64_t shape[2] = {1, 4};
  gw_view view;
  gw_view_set(&view, x, shape, 2, GW_F32);
  EXPECT_OK(gw_gangs_create(me->gang, NULL, &gangs));
  EXPECT_OK(collecting_module(&c, &model));
  EXPECT_OK(gw_fully_shard(model, "", gangs, NULL));
  EXPECT_OK(gw_module_materialize(model, gangs, 1, GW_F32));
  gw_frame* first = NULL;
  EXPECT_OK(gw_frame_create(model, NULL, &first));
  EXPECT_OK(gw_frame_create(model, NULL, &second));
  EXPECT_OK(gw_module_forward(model, &view, 1, first, NULL, &out, 1, &count));
  gw_tensor_release(out);
  c.frame = first;
  EXPECT_OK(gw_module_forward(model, &view, 1, second, NULL, &out, 1, &count));
  gw_tensor_release(out);
  EXPECT(c.frame == NULL);
  gw_frame_release(second);
  gw_module_release(model);
  gw_gangs_release(gangs);
}

static void a_frame_released_during_forward_leaves_the_values_alone(void** state) {
  (void)state;
  run_ranks(2, in_mid_forward, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      test_on_device(a_given_up_forward_leaves_gradients_alone),
      test_on_device(ranks_release_a_frame_each_at_its_own_time),
      test_on_device(a_frame_released_during_forward_leaves_the_values_alone),
  };
  return cmocka_run_group_tests_name("capi_frame_release", tests, NULL, NULL);
}

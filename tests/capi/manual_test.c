/* A manual forward or backward that fails on one rank is reported to its peers, which wait for that rank. */
#include "models.h"

typedef struct hand {
  gw_gangs* gangs;
  gw_gang* root;
  gw_module* model;
  gw_frame* frame;
  line l;
  int freed;
  float x[3];
  int64_t shape[1];
  gw_view view;
} hand;

static gw_status set_up(rank* me, hand* h) {
  memset(h, 0, sizeof *h);
  h->shape[0] = 3;
  gw_view_set(&h->view, h->x, h->shape, 1, GW_F32);
  gw_status status = create_line(&h->l, &h->freed, &h->model);
  if (status == GW_OK) status = gw_gangs_create(me->gang, NULL, &h->gangs);
  if (status == GW_OK) status = gw_gangs_get(h->gangs, "root", &h->root);
  if (status == GW_OK) status = gw_parallelize(h->model, h->gangs, NULL);
  if (status == GW_OK) status = gw_frame_create(h->model, NULL, &h->frame);
  return status;
}

static void tear_down(hand* h) {
  gw_frame_release(h->frame);
  gw_module_release(h->model);
  gw_gang_release(h->root);
  gw_gangs_release(h->gangs);
}

static gw_status forward(hand* h, gw_frame* frame) {
  gw_tensor* out[2] = {NULL, NULL};
  size_t count = 0;
  const gw_status status = gw_module_forward(h->model, &h->view, 1, frame, NULL, out, 2, &count);
  for (int i = 0; i < 2; ++i) gw_tensor_release(out[i]);
  return status;
}
static gw_status backward(hand* h) {
  gw_tensor* out = NULL;
  size_t count = 0;
  const gw_status status = gw_module_backward(h->model, NULL, 0, h->frame, NULL, &out, 1, &count);
  gw_tensor_release(out);
  return status;
}

/* A call that needs nothing of the failed rank succeeds; the barrier after it then fails. */
static gw_status failed(hand* h, gw_status status) {
  return status == GW_OK ? gw_gang_barrier(h->root, NULL) : status;
}

/* user: 0 if evaluation fails on rank 0, 1 if forward fails, 2 if backward fails. */
static void failing(rank* me) {
  const int which = *(const int*)me->user;
  hand h;
  EXPECT_OK(set_up(me, &h));
  gw_frame* const frame = which == 0 ? NULL : h.frame;
  if (which == 2) EXPECT_OK(forward(&h, frame));
  EXPECT_OK(gw_gang_barrier(h.root, NULL)); /* no rank fails before all are here */
  if (me->index == 0 && which < 2) h.l.fail_forward = GW_E_CALLER;
  if (me->index == 0 && which == 2) h.l.fail_backward = GW_E_IO;
  EXPECT_STATUS(failed(&h, which == 2 ? backward(&h) : forward(&h, frame)),
                me->index != 0 ? GW_E_ABORTED
                : which == 2   ? GW_E_IO
                               : GW_E_CALLER,
                "line");
  EXPECT(strstr(last_error().message, which == 2 ? "backward_input" : "forward") != NULL);
  EXPECT(strstr(last_error().message, "rank 0") != NULL);
  EXPECT(gw_gang_async_error(h.root) != GW_OK && strstr(last_error().message, "line") != NULL);
  tear_down(&h);
}

static void a_modules_failure_on_one_rank_reaches_its_peers(void** state) {
  (void)state;
  for (int32_t n = 2; n <= 3; ++n)
    for (int which = 0; which <= 2; ++which) run_ranks(n, failing, &which);
}

/* A rank that is alone has no peers to tell. */
static void failing_alone(rank* me) {
  hand h;
  EXPECT_OK(set_up(me, &h));
  h.l.fail_forward = GW_E_CALLER;
  EXPECT_STATUS(forward(&h, h.frame), GW_E_CALLER, "line");
  h.l.fail_forward = 0;
  EXPECT_OK(forward(&h, h.frame));
  h.l.fail_backward = GW_E_IO;
  EXPECT_STATUS(backward(&h), GW_E_IO, "line");
  h.l.fail_backward = 0;
  EXPECT_OK(forward(&h, h.frame));
  EXPECT_OK(backward(&h));
  EXPECT_OK(gw_gang_barrier(h.root, NULL));
  tear_down(&h);
}

static void a_model_of_one_rank_works_on_after_a_modules_failure(void** state) {
  (void)state;
  run_ranks(1, failing_alone, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      test_on_device(a_modules_failure_on_one_rank_reaches_its_peers),
      test_on_device(a_model_of_one_rank_works_on_after_a_modules_failure),
  };
  return cmocka_run_group_tests_name("capi_manual", tests, NULL, NULL);
}

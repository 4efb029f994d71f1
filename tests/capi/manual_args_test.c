/* A manual forward or backward that one rank refuses is refused on every rank. Nothing has run, and the gang
 * goes on working. */
#include "manual.h"

/* Rank 0 passes a wrong argument, and the other ranks run a correct forward. `l` is intact again for the next
 * case. */
typedef struct wrong {
  const char* text;
  gw_status code;
  void (*spoil)(loop* l);
  int evaluation;
} wrong;

static int64_t tokens[32];
static int64_t long_shape[2] = {1, 32}, other_shape[2] = {1, 4}, flat_shape[1] = {8};
static float floats[8];

static void token_outside(loop* l) {
  l->b.tokens[5] = 11;
  gw_view_set(&l->inputs[1], tokens, l->b.shape, 2, GW_I64);
}
static void token_below(loop* l) { l->b.tokens[0] = -1; }
static void label_outside(loop* l) {
  tokens[3] = 12;
  gw_view_set(&l->inputs[1], tokens, l->b.shape, 2, GW_I64);
}
static void wrong_dtype(loop* l) { gw_view_set(&l->inputs[0], floats, l->b.shape, 2, GW_F32); }
static void wrong_rank(loop* l) { gw_view_set(&l->inputs[0], l->b.tokens, flat_shape, 1, GW_I64); }
static void too_long(loop* l) {
  for (int i = 0; i < 2; ++i) gw_view_set(&l->inputs[i], tokens, long_shape, 2, GW_I64);
}
static void other_labels(loop* l) { gw_view_set(&l->inputs[1], l->b.tokens, other_shape, 2, GW_I64); }
static void null_data(loop* l) { l->inputs[0].data = NULL; }

static const wrong wrongs[] = {
    {"token id 11 is outside the vocabulary of 11", GW_E_INVALID_ARGUMENT, token_outside, 0},
    {"token id 11 is outside the vocabulary of 11", GW_E_INVALID_ARGUMENT, token_outside, 1},
    {"token id -1 is outside the vocabulary of 11", GW_E_INVALID_ARGUMENT, token_below, 0},
    {"label 12 is outside the vocabulary of 11", GW_E_INVALID_ARGUMENT, label_outside, 0},
    {"label 12 is outside the vocabulary of 11", GW_E_INVALID_ARGUMENT, label_outside, 1},
    {"tokens are f32 [2, 4]", GW_E_INVALID_ARGUMENT, wrong_dtype, 0},
    {"tokens are i64 [8]", GW_E_INVALID_ARGUMENT, wrong_rank, 1},
    {"longer than max_position_embeddings 16", GW_E_INVALID_ARGUMENT, too_long, 0},
    {"labels are i64 [1, 4] and tokens i64 [2, 4]", GW_E_INVALID_ARGUMENT, other_labels, 0},
    {"inputs[0] of shape [2, 4] has null data", GW_E_INVALID_ARGUMENT, null_data, 0}};

static void refused_together(rank* me) {
  const gw_strategy strategy = *(const gw_strategy*)me->user;
  loop l;
  EXPECT_OK(set_up(me, strategy, &l));
  const double whole = norm_of_one(&l);
  EXPECT(whole > 0);
  gw_frame* const frame = l.frame;
  for (size_t i = 0; i < sizeof wrongs / sizeof *wrongs; ++i) {
    if (me->index == 0) {
      memset(tokens, 0, sizeof tokens);
      wrongs[i].spoil(&l);
    }
    l.frame = wrongs[i].evaluation ? NULL : frame;
    EXPECT_STATUS(forward(&l, 2), wrongs[i].code, wrongs[i].text);
    EXPECT(gw_gang_async_error(me->gang) == GW_OK);
    fill_batch(&l.b, 2, me->index);
    l.inputs[0] = l.inputs[1] = l.b.input;
    l.frame = frame;
    EXPECT(norm_of_one(&l) == whole);
  }
  EXPECT_REFUSED(forward(&l, me->index == 0 ? 1 : 2), "out_tensors gets 2 results, out_capacity is 1");
  EXPECT(norm_of_one(&l) == whole);
  /* On rank 0 the frame waits for its backward. */
  gw_frame* another = NULL;
  EXPECT_OK(gw_frame_create(l.model, NULL, &another));
  EXPECT_OK(forward(&l, 2));
  if (me->index != 0) l.frame = another;
  EXPECT_STATUS(forward(&l, 2), GW_E_INVALID_STATE, "frame has had a forward already");
  l.frame = frame;
  EXPECT_OK(backward(&l));
  EXPECT_OK(gw_zero_grad(l.model, NULL));
  EXPECT(norm_of_one(&l) == whole);
  gw_frame_release(another);
  tear_down(&l);
}

static void an_argument_that_one_rank_refuses_leaves_the_gang_whole(void** state) {
  (void)state;
  gw_strategy strategies[] = {GW_FULL_SHARD, GW_SHARD_GRAD_OP, GW_NO_SHARD};
  for (int32_t n = 2; n <= most_ranks(); ++n)
    for (size_t i = 0; i < 3; ++i) run_ranks(n, refused_together, &strategies[i]);
}

/* Each case is on rank 1 only. It would postpone more, or fewer, collectives than its peers do. */
static void differing_is_a_mismatch(rank* me) {
  const int here = me->index == 1;
  loop l;
  EXPECT_OK(set_up(me, *(const gw_strategy*)me->user, &l));
  const double whole = norm_of_one(&l);
  gw_frame* const frame = l.frame;
  if (here) l.frame = NULL;
  EXPECT_STATUS(
      forward(&l, 2), GW_E_MISMATCH,
      "rank 0 asked for a forward with a frame (training), no_sync off, inputs i64 i64, but rank 1 for a "
      "forward without a frame (evaluation), no_sync off");
  l.frame = frame;
  EXPECT_OK(gw_module_set_no_sync(l.model, here));
  EXPECT_STATUS(forward(&l, 2), GW_E_MISMATCH,
                "no_sync off, inputs i64 i64, but rank 1 for a forward with a frame (training), no_sync on");
  EXPECT_OK(gw_module_set_no_sync(l.model, 0));
  EXPECT_OK(forward(&l, 2));
  EXPECT_OK(gw_module_set_no_sync(l.model, here));
  EXPECT_STATUS(backward(&l), GW_E_MISMATCH,
                "rank 0 asked for a backward, no_sync off, but rank 1 for a backward, no_sync on");
  EXPECT_STATUS(here ? forward(&l, 2) : backward(&l), GW_E_INVALID_STATE, "frame has had a forward already");
  EXPECT_OK(gw_module_set_no_sync(l.model, 0));
  EXPECT_OK(backward(&l));
  EXPECT_OK(gw_zero_grad(l.model, NULL));
  EXPECT(gw_gang_async_error(me->gang) == GW_OK);
  EXPECT(norm_of_one(&l) == whole);
  tear_down(&l);
}

static void ranks_that_differ_are_told_before_anything_runs(void** state) {
  (void)state;
  gw_strategy strategies[] = {GW_FULL_SHARD, GW_SHARD_GRAD_OP, GW_NO_SHARD};
  for (int32_t n = 2; n <= most_ranks(); ++n)
    for (size_t i = 0; i < 3; ++i) run_ranks(n, differing_is_a_mismatch, &strategies[i]);
}

/* Models whose layers refuse the outputs of the layers before them. */
typedef struct small_model {
  gw_gangs* gangs;
  gw_module* model;
  gw_module* parts[3];
} small_model;

static gw_status describe_parts(size_t which, small_model* m) {
  gw_status status = GW_OK;
  if (which == 0) {
    /* ids -> [.., 4] -> 8 -> norm of 8 */
    status = gw_embedding_create(5, 4, &m->parts[0]);
    if (status == GW_OK) status = gw_linear_create(4, 8, 1, &m->parts[1]);
    if (status == GW_OK) status = gw_rmsnorm_create(8, 1e-5, &m->parts[2]);
    return status;
  }
  gw_attention_options a;
  gw_attention_options_init(&a, sizeof a);
  a.dim = 8;
  a.heads = 2;
  status = gw_linear_create(4, 8, 0, &m->parts[0]);
  if (status == GW_OK) status = gw_block_create(&a, 16, 1e-5, &m->parts[1]);
  if (status == GW_OK) status = gw_mlp_create(8, 16, 0, &m->parts[2]);
  return status;
}

static gw_status forward_of(small_model* m, const gw_view* input) {
  gw_tensor* out[2] = {NULL, NULL};
  size_t count = 0;
  const gw_status status = gw_module_forward(m->model, input, 1, NULL, NULL, out, 2, &count);
  for (int i = 0; i < 2; ++i) gw_tensor_release(out[i]);
  return status;
}

static void layers_refuse_together(rank* me) {
  static const struct {
    size_t which;
    gw_dtype dtype;
    int32_t ndim;
    int64_t last;
    const char* text;
  } cases[] = {
      {0, GW_F32, 2, 4, "Embedding 0: ids are f32 [2, 4], not i64"},
      {1, GW_F32, 3, 5, "Linear 0: input is f32 [2, 2, 5], its last dim must be 4"},
      {1, GW_F64, 3, 4, "Linear 0: input is f64 [2, 2, 4] and weight is f32"},
      {1, GW_F32, 2, 4, "Attention 1.self_attn: input is f32 [2, 8], wanted [batch, sequence, width]"}};
  static const double zeros[20];
  gw_parallel_options p;
  gw_parallel_options_init(&p, sizeof p);
  for (size_t which = 0; which < 2; ++which) {
    small_model m;
    memset(&m, 0, sizeof m);
    EXPECT_OK(describe_parts(which, &m));
    EXPECT_OK(gw_sequential_create(m.parts, 3, &m.model));
    EXPECT_OK(gw_gangs_create(me->gang, NULL, &m.gangs));
    EXPECT_OK(gw_parallelize(m.model, m.gangs, &p));
    int64_t shape[3] = {2, 2, 4};
    gw_view good, bad;
    if (which == 0)
      gw_view_set(&good, (void*)zeros, shape, 2, GW_I64);
    else
      gw_view_set(&good, (void*)zeros, shape, 3, GW_F32);
    EXPECT_OK(forward_of(&m, &good));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
      if (cases[i].which != which) continue;
      int64_t dims[3] = {2, 2, cases[i].last};
      if (cases[i].ndim == 2) dims[1] = cases[i].last;
      gw_view_set(&bad, (void*)zeros, dims, cases[i].ndim, cases[i].dtype);
      EXPECT_REFUSED(forward_of(&m, me->index == 1 ? &bad : &good), cases[i].text);
      EXPECT(gw_gang_async_error(me->gang) == GW_OK);
      EXPECT_OK(forward_of(&m, &good));
    }
    gw_module_release(m.model);
    for (int i = 0; i < 3; ++i) gw_module_release(m.parts[i]);
    gw_gangs_release(m.gangs);
  }
}

static void each_layer_refuses_before_any_runs(void** state) {
  (void)state;
  run_ranks(2, layers_refuse_together, NULL);
}

/* The `shapes` callback of a custom module refuses inputs. */
static gw_status picky_shapes(void* user, gw_call* call) {
  if (call->inputs[0].shape[0] != 3) return gw_error_set("takes three numbers"), GW_E_INVALID_ARGUMENT;
  return line_shapes(user, call);
}

static void custom_refuses_together(rank* me) {
  static float x[4];
  int freed = 0;
  line l;
  gw_init_options init;
  gw_parameter_options p;
  gw_custom_options c;
  gw_gangs* gangs = NULL;
  gw_module* model = NULL;
  memset(&l, 0, sizeof l);
  line_parameter(&p, &init, &freed);
  line_options(&c, &l, &p);
  c.shapes = picky_shapes;
  EXPECT_OK(gw_custom_create(&c, &model));
  EXPECT_OK(gw_gangs_create(me->gang, NULL, &gangs));
  EXPECT_OK(gw_parallelize(model, gangs, NULL));
  small_model m = {gangs, model, {NULL, NULL, NULL}};
  int64_t three[1] = {3}, four[1] = {4};
  gw_view good, bad;
  gw_view_set(&good, x, three, 1, GW_F32);
  gw_view_set(&bad, x, four, 1, GW_F32);
  EXPECT_OK(forward_of(&m, &good));
  const int forwards = l.forwards;
  EXPECT_REFUSED(forward_of(&m, me->index == 1 ? &bad : &good), "takes three numbers");
  EXPECT(l.forwards == forwards);
  gw_view both[2] = {good, good};
  gw_tensor* out[2] = {NULL, NULL};
  size_t count = 0;
  EXPECT_REFUSED(gw_module_forward(model, both, me->index == 0 ? 2 : 1, NULL, NULL, out, 2, &count),
                 "takes 1 inputs, got 2");
  /* A precision that the module takes, but that its peers do not have. */
  static double wide[3];
  gw_view other;
  gw_view_set(&other, wide, three, 1, GW_F64);
  EXPECT_STATUS(forward_of(&m, me->index == 0 ? &other : &good), GW_E_MISMATCH, "inputs f64, but rank 1 for");
  EXPECT_OK(forward_of(&m, &good));
  gw_module_release(model);
  gw_gangs_release(gangs);
}

static void a_custom_modules_shapes_refuse_before_any_runs(void** state) {
  (void)state;
  run_ranks(2, custom_refuses_together, NULL);
}

static gw_status backward_of(gw_module* model, gw_frame* frame, const gw_view* gradient, size_t count) {
  gw_tensor* out = NULL;
  size_t out_count = 0;
  const gw_status status = gw_module_backward(model, gradient, count, frame, NULL, &out, 1, &out_count);
  gw_tensor_release(out);
  return status;
}

/* Each case is on rank 1 only. */
static void backwards_refused_together(rank* me) {
  static float x[8], grads[8];
  int64_t in[2] = {2, 4}, right[2] = {2, 3}, wrong[2] = {3, 2};
  const int here = me->index == 1;
  gw_gangs* gangs = NULL;
  gw_module* model = NULL;
  gw_frame *frame = NULL, *fresh = NULL;
  gw_tensor* y = NULL;
  size_t count = 0;
  gw_view input, good, bad, integers;
  gw_view_set(&input, x, in, 2, GW_F32);
  gw_view_set(&good, grads, right, 2, GW_F32);
  gw_view_set(&bad, grads, wrong, 2, GW_F32);
  gw_view_set(&integers, grads, right, 2, GW_I32);
  EXPECT_OK(gw_linear_create(4, 3, 0, &model));
  EXPECT_OK(gw_gangs_create(me->gang, NULL, &gangs));
  EXPECT_OK(gw_parallelize(model, gangs, NULL));
  EXPECT_OK(gw_frame_create(model, NULL, &frame));
  EXPECT_OK(gw_frame_create(model, NULL, &fresh));
  EXPECT_OK(gw_module_forward(model, &input, 1, frame, NULL, &y, 1, &count));
  gw_tensor_release(y);
  EXPECT_REFUSED(backward_of(model, frame, here ? &bad : &good, 1),
                 "output_grads[0] is f32 [3, 2], the output was f32 [2, 3]");
  EXPECT_REFUSED(backward_of(model, frame, here ? &integers : &good, 1), "output_grads[0] is i32 [2, 3]");
  const gw_view both[2] = {good, good};
  EXPECT_REFUSED(backward_of(model, frame, both, here ? 2 : 1),
                 "backward got 2 gradients, forward made 1 outputs");
  EXPECT_REFUSED(backward_of(model, here ? NULL : frame, &good, 1), "frame is null");
  EXPECT_STATUS(backward_of(model, here ? fresh : frame, &good, 1), GW_E_INVALID_STATE,
                "frame has had no forward");
  EXPECT(gw_gang_async_error(me->gang) == GW_OK);
  EXPECT_OK(backward_of(model, frame, &good, 1)); /* the forward still waits for it */
  gw_frame_release(fresh);
  gw_frame_release(frame);
  gw_module_release(model);
  gw_gangs_release(gangs);
}

static void a_gradient_that_one_rank_refuses_leaves_the_forward_as_it_was(void** state) {
  (void)state;
  run_ranks(2, backwards_refused_together, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      test_on_device(an_argument_that_one_rank_refuses_leaves_the_gang_whole),
      test_on_device(ranks_that_differ_are_told_before_anything_runs),
      test_on_device(each_layer_refuses_before_any_runs),
      test_on_device(a_custom_modules_shapes_refuse_before_any_runs),
      test_on_device(a_gradient_that_one_rank_refuses_leaves_the_forward_as_it_was),
  };
  return cmocka_run_group_tests_name("capi_manual_args", tests, NULL, NULL);
}

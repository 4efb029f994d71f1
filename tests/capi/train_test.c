#include "models.h"

#include <math.h>

typedef struct setup {
  gw_gangs* gangs;
  gw_module* model;
  gw_optimizer* opt;
} setup;

static gw_status set_up(rank* me, setup* s, gw_module* model) {
  gw_parallel_options p;
  gw_parallel_options_init(&p, sizeof p);
  p.master_dtype = GW_F64;
  p.seed = 3;
  const gw_decoder_options o = small_llama();
  memset(s, 0, sizeof *s);
  s->model = model;
  gw_status status = gw_gangs_create(me->gang, NULL, &s->gangs);
  if (status == GW_OK && model == NULL) status = gw_decoder_create(&o, &s->model);
  if (status == GW_OK) status = gw_parallelize(s->model, s->gangs, &p);
  gw_adamw_options a;
  gw_adamw_options_init(&a, sizeof a);
  a.lr = 0.01;
  if (status == GW_OK) status = gw_adamw_create(s->model, &a, &s->opt);
  return status;
}

static void tear_down(setup* s) {
  gw_optimizer_release(s->opt);
  gw_module_release(s->model);
  gw_gangs_release(s->gangs);
}

enum { kSteps = 4 };

static gw_status count_token(void* user, int64_t row, int64_t token, int32_t* stop) {
  *(int32_t*)user += row == 0 && token >= 0;
  *stop = 0;
  return GW_OK;
}

/* Computes the losses of some steps over the same six rows on any number of ranks. user: losses [kSteps +
 * 1]. */
static void trains(rank* me) {
  setup s;
  small_batch b;
  EXPECT_OK(set_up(me, &s, NULL));
  const int64_t rows = 6 / me->size;
  /* Six rows do not fit into small_batch on one rank, so the rows are in an array of their own. */
  int64_t tokens[6 * 4];
  fill_batch(&b, 1, 0);
  for (int64_t i = 0; i < rows * 4; ++i) tokens[i] = (me->index * rows * 4 + i) * 3 % 11;
  b.shape[0] = rows;
  b.input.data = b.target.data = tokens;
  gw_step_options o;
  gw_step_options_init(&o, sizeof o);
  o.max_grad_norm = 1;
  o.microbatches = 2;
  gw_step_result r;
  gw_step_result_init(&r, sizeof r);
  double losses[kSteps + 1];
  for (int step = 0; step < kSteps; ++step) {
    EXPECT_OK(gw_train_step(s.model, s.opt, &b.batch, &o, NULL, &r));
    losses[step] = r.loss;
    EXPECT(r.weight == 18 && r.skipped == 0 && r.skip_reason == GW_SKIP_NONE); /* three labels per row */
    EXPECT(r.grad_norm > 0 && r.seconds > 0 && r.tokens_per_second > 0 && r.lr == 0.01);
  }
  EXPECT_OK(gw_eval_step(s.model, &b.batch, NULL, NULL, &r));
  losses[kSteps] = r.loss;
  EXPECT(r.grad_norm == -1); /* was not computed */
  EXPECT(losses[kSteps] < losses[0] && fabs(losses[0] - log(11)) < 0.1);
  EXPECT_OK(gw_train_step(s.model, s.opt, &b.batch, NULL, NULL, NULL)); /* without a result */
  /* Generated text, which is the same on every rank. */
  gw_generate_options g;
  gw_generate_options_init(&g, sizeof g);
  g.token_count = 5;
  g.temperature = 0;
  const int64_t prompt[2] = {1, 4};
  int64_t out[7];
  size_t count = 0;
  double sum = 0;
  EXPECT_OK(gw_generate(s.model, prompt, 2, &g, NULL, out, 7, &count));
  EXPECT(count == 5);
  EXPECT_REFUSED(gw_generate(s.model, prompt, 2, &g, NULL, out, me->index == 0 ? 4 : 5, &count),
                 "token_count is 5, out_capacity 4");
  EXPECT(count == 0);
  for (int i = 0; i < 5; ++i) EXPECT(out[i] >= 0 && out[i] < 11);
  EXPECT_OK(gw_gang_all_sum(me->gang, (double)out[4], &sum));
  EXPECT(sum == (double)out[4] * me->size);
  /* Several prompts, of different lengths: the first row is the prompt alone. */
  const int64_t prompts[3] = {1, 4, 7}, lengths[2] = {2, 1};
  int64_t both[10], counts[2];
  EXPECT_OK(gw_generate_rows(s.model, prompts, lengths, 2, &g, NULL, both, 10, counts));
  EXPECT(counts[0] == 5 && counts[1] == 5 && memcmp(both, out, sizeof both / 2) == 0);
  EXPECT_REFUSED(
      gw_generate_rows(s.model, prompts, lengths, 2, &g, NULL, both, me->index == 0 ? 9 : 10, counts),
      "token_count is 5 for each of 2 rows, out_capacity 9");
  const int64_t stop = both[1];
  g.stop_tokens = &stop;
  g.stop_count = 1;
  g.on_token = count_token;
  int32_t seen = 0;
  g.user = &seen;
  EXPECT_OK(gw_generate_rows(s.model, prompts, lengths, 1, &g, NULL, both, 10, counts));
  EXPECT(counts[0] == seen && counts[0] <= 2 && both[counts[0] - 1] == stop);
  /* The mean of the log-probabilities is the loss. */
  double log_probs[24], mine = 0;
  EXPECT_OK(gw_eval_step(s.model, &b.batch, NULL, NULL, &r));
  EXPECT_OK(gw_log_probs(s.model, &b.batch, NULL, NULL, log_probs, 24, &count));
  EXPECT(count == (size_t)(rows * 4));
  for (size_t i = 0; i < count; ++i) mine -= log_probs[i];
  EXPECT_OK(gw_gang_all_sum(me->gang, mine, &sum));
  EXPECT(fabs(sum / 18 - r.loss) < 1e-12 && r.weight_sum == 18);
  EXPECT_REFUSED(gw_log_probs(s.model, &b.batch, NULL, NULL, log_probs, me->index == 0 ? 1 : 24, &count),
                 "labels, out_capacity is 1");
  if (me->index == 0) memcpy(me->user, losses, sizeof losses);
  EXPECT_OK(gw_gangs_shutdown(s.gangs, -1));
  tear_down(&s);
}

static void training_gives_the_same_losses_on_any_mesh(void** state) {
  (void)state;
  double alone[kSteps + 1], sharded[kSteps + 1];
  run_ranks(1, trains, alone);
  for (int32_t n = 2; n <= 3; ++n) {
    run_ranks(n, trains, sharded);
    for (int i = 0; i <= kSteps; ++i) assert_true(fabs(alone[i] - sharded[i]) < 1e-9);
  }
}

/* Bad arguments of one rank are refused on every rank with that rank's code and text, and training goes
 * on. */
static void refused_steps(rank* me) {
  setup s;
  small_batch b;
  EXPECT_OK(set_up(me, &s, NULL));
  const int last = me->index == me->size - 1;
  gw_step_options o;
  gw_step_result r;
  gw_step_result_init(&r, sizeof r);
  gw_gang* root = NULL;
  EXPECT_OK(gw_gangs_get(s.gangs, "root", &root));
#define REFUSED_WITH(change, code, part)                                            \
  fill_batch(&b, 2, me->index);                                                     \
  gw_step_options_init(&o, sizeof o);                                               \
  if (last) change;                                                                 \
  EXPECT_STATUS(gw_train_step(s.model, s.opt, &b.batch, &o, NULL, &r), code, part); \
  EXPECT_OK(gw_gang_async_error(root))
  REFUSED_WITH(b.tokens[5] = 11, GW_E_INVALID_ARGUMENT, "token id 11 is outside the vocabulary");
  REFUSED_WITH(b.input.dtype = GW_F32, GW_E_INVALID_ARGUMENT, "tokens are f32");
  REFUSED_WITH(b.input.ndim = 9, GW_E_INVALID_ARGUMENT, "ndim 9");
  REFUSED_WITH(b.input.data = NULL, GW_E_INVALID_ARGUMENT, "batch.inputs[0]");
  REFUSED_WITH(b.shape[0] = -1, GW_E_INVALID_ARGUMENT, "dim 0 of a tensor is -1");
  REFUSED_WITH(b.batch.input_count = 0, GW_E_INVALID_ARGUMENT, NULL);
  REFUSED_WITH(b.batch.inputs = NULL, GW_E_INVALID_ARGUMENT, "batch.inputs is null");
  REFUSED_WITH(b.batch.struct_size = 4, GW_E_INVALID_ARGUMENT, "struct_size is 4");
  REFUSED_WITH(b.batch.weight = -2, GW_E_INVALID_ARGUMENT, "weight = -2");
  REFUSED_WITH(o.microbatches = 0, GW_E_INVALID_ARGUMENT, "microbatches = 0");
  REFUSED_WITH(o.max_grad_norm = -1, GW_E_INVALID_ARGUMENT, "max_grad_norm = -1");
  REFUSED_WITH(o.norm_type = 0, GW_E_INVALID_ARGUMENT, "norm_type = 0");
  REFUSED_WITH(o.scale = 2, GW_E_INVALID_ARGUMENT, "scale = 2");
  REFUSED_WITH(o.struct_size = 1, GW_E_INVALID_ARGUMENT, "struct_size is 1");
  REFUSED_WITH(r.struct_size = 2, GW_E_INVALID_ARGUMENT, "struct_size is 2");
  gw_step_result_init(&r, sizeof r);
#undef REFUSED_WITH
  fill_batch(&b, 2, me->index);
  EXPECT_REFUSED(gw_train_step(s.model, s.opt, last ? NULL : &b.batch, NULL, NULL, &r), "batch is null");
  EXPECT_REFUSED(gw_eval_step(s.model, &b.batch, NULL, NULL, last ? NULL : &r), "result is null");
  EXPECT_REFUSED(gw_eval_step(s.model, last ? NULL : &b.batch, NULL, NULL, &r), "batch is null");
  int64_t out[64];
  size_t count = 0;
  gw_generate_options g;
  gw_generate_options_init(&g, sizeof g);
  g.token_count = 4;
  const int64_t prompt[1] = {last ? 11 : 1}, good[1] = {1};
  EXPECT_STATUS(gw_generate(s.model, prompt, 1, &g, NULL, out, 64, &count), GW_E_INVALID_ARGUMENT,
                "the prompt has id 11");
  EXPECT_REFUSED(gw_generate(s.model, good, 0, &g, NULL, out, 64, &count), NULL);
  EXPECT_REFUSED(gw_generate(s.model, last ? NULL : good, 1, &g, NULL, out, 64, &count), "prompt is null");
  EXPECT_REFUSED(gw_generate(s.model, good, 1, &g, NULL, last ? NULL : out, 64, &count),
                 "out_tokens is null");
  EXPECT_REFUSED(gw_generate(s.model, good, 1, &g, NULL, out, 64, last ? NULL : &count), "out_count is null");
  EXPECT_OK(gw_train_step(s.model, s.opt, &b.batch, NULL, NULL, &r));
  /* If no label on any rank counts, the step changes nothing. */
  for (int i = 0; i < 8; ++i) b.tokens[i] = 1;
  int64_t labels[8];
  for (int i = 0; i < 8; ++i) labels[i] = -100;
  b.target.data = labels;
  EXPECT_OK(gw_train_step(s.model, s.opt, &b.batch, NULL, NULL, &r));
  EXPECT(r.skipped == 1 && r.skip_reason == GW_SKIP_NO_WEIGHT && r.weight == 0);
  gw_gang_release(root);
  tear_down(&s);
}

static void one_ranks_bad_argument_comes_back_on_every_rank(void** state) {
  (void)state;
  for (int32_t n = 1; n <= 3; ++n) run_ranks(n, refused_steps, NULL);
}

/* The squares of the norms of all gradients sum to that of the norm which clipping computes. */
static void norms_of_a_step(rank* me) {
  setup s;
  small_batch b;
  EXPECT_OK(set_up(me, &s, NULL));
  fill_batch(&b, 2, me->index);
  gw_step_options o;
  gw_step_result r;
  gw_step_options_init(&o, sizeof o);
  gw_step_result_init(&r, sizeof r);
  o.max_grad_norm = 1;
  double norms[64], squares = 0;
  size_t count = 0, parameters = 0;
  EXPECT_OK(gw_module_parameter_count(s.model, &parameters));
  EXPECT(parameters > 1 && parameters <= 64);
  EXPECT_OK(gw_train_step(s.model, s.opt, &b.batch, &o, NULL, &r));
  EXPECT_STATUS(gw_module_gradient_norms(s.model, NULL, 0, &count), GW_E_INVALID_STATE,
                "no step has computed gradient norms");
  o.gradient_norms = 1;
  EXPECT_OK(gw_train_step(s.model, s.opt, &b.batch, &o, NULL, &r));
  EXPECT_OK(gw_module_gradient_norms(s.model, NULL, 0, &count));
  EXPECT(count == parameters);
  norms[0] = -1;
  EXPECT_REFUSED(gw_module_gradient_norms(s.model, norms, parameters - 1, &count), "out_capacity is");
  EXPECT(norms[0] == -1);
  EXPECT_OK(gw_module_gradient_norms(s.model, norms, 64, &count));
  EXPECT(count == parameters);
  for (size_t i = 0; i < count; ++i) squares += norms[i] * norms[i];
  EXPECT(r.grad_norm > 0 && fabs(sqrt(squares) - r.grad_norm) < 1e-6 * r.grad_norm);
  tear_down(&s);
}

static void a_step_gives_the_norm_of_each_gradient(void** state) {
  (void)state;
  for (int32_t n = 1; n <= 3; ++n) run_ranks(n, norms_of_a_step, NULL);
}

/* The views lie in memory of the host and may be strided; a document ends the labels that the library
 * makes. */
static void packed_rows(rank* me) {
  setup s;
  small_batch b;
  EXPECT_OK(set_up(me, &s, NULL));
  fill_batch(&b, 2, me->index);
  gw_step_result whole, packed;
  gw_step_result_init(&whole, sizeof whole);
  gw_step_result_init(&packed, sizeof packed);
  EXPECT_OK(gw_eval_step(s.model, &b.batch, NULL, NULL, &whole));
  int32_t positions[8] = {0, 1, 2, 3, 0, 1, 2, 3};
  gw_view of_positions, of_documents;
  EXPECT_OK(gw_view_set(&of_positions, positions, b.shape, 2, GW_I32));
  b.batch.positions = &of_positions;
  EXPECT_OK(gw_eval_step(s.model, &b.batch, NULL, NULL, &packed));
  EXPECT(packed.loss == whole.loss && packed.weight == 6 * me->size);
  b.batch.positions = NULL;
  int64_t documents[16];
  for (int i = 0; i < 16; ++i) documents[i] = i / 4 % 2; /* every other number is that of a token */
  const int64_t strides[2] = {8, 2};
  EXPECT_OK(gw_view_set(&of_documents, documents, b.shape, 2, GW_I64));
  of_documents.strides = strides;
  b.batch.documents = &of_documents;
  EXPECT_OK(gw_eval_step(s.model, &b.batch, NULL, NULL, &packed));
  EXPECT(packed.loss != whole.loss && packed.weight == 4 * me->size);
  documents[14] = 0;
  documents[12] = 1;
  documents[10] = 1;
  EXPECT_REFUSED(gw_eval_step(s.model, &b.batch, NULL, NULL, &packed),
                 "document 0 comes again at token 3 of row 1");
  tear_down(&s);
}

static void a_batch_says_the_documents_and_positions_of_its_tokens(void** state) {
  (void)state;
  for (int32_t n = 1; n <= 2; ++n) run_ranks(n, packed_rows, NULL);
}

/* --- custom modules --- */

typedef struct line_setup {
  setup s;
  gw_gang* root;
  line l;
  int freed;
} line_setup;

static gw_status set_up_line(rank* me, line_setup* t) {
  memset(t, 0, sizeof *t);
  gw_module* model = NULL;
  gw_parallel_options po;
  gw_parallel_options_init(&po, sizeof po);
  gw_status status = create_line(&t->l, &t->freed, &model);
  t->s.model = model;
  if (status == GW_OK) status = gw_gangs_create(me->gang, NULL, &t->s.gangs);
  if (status == GW_OK) status = gw_gangs_get(t->s.gangs, "root", &t->root);
  if (status == GW_OK) status = gw_parallelize(model, t->s.gangs, &po);
  if (status == GW_OK) status = gw_sgd_create(model, NULL, &t->s.opt);
  return status;
}

static gw_batch line_batch(float* x, const int64_t* shape, gw_view* view) {
  gw_view_set(view, x, shape, 1, GW_F32);
  gw_batch b;
  gw_batch_init(&b, sizeof b);
  b.inputs = view;
  b.input_count = 1;
  b.weight = shape[0];
  return b;
}

/* user: which callback fails on rank 0: 1 forward, 2 backward_input. */
static void failing_callback(rank* me) {
  const int which = *(const int*)me->user;
  line_setup t;
  EXPECT_OK(set_up_line(me, &t));
  float x[3] = {1, 2, 3};
  const int64_t shape[1] = {3};
  gw_view view;
  const gw_batch b = line_batch(x, shape, &view);
  gw_step_result r;
  gw_step_result_init(&r, sizeof r);
  EXPECT_OK(gw_train_step(t.s.model, t.s.opt, &b, NULL, NULL, &r));
  EXPECT(fabs(r.loss - 4) < 1e-6); /* the mean of 2 x */
  EXPECT(t.l.seed_seen == 1.0 / (3 * me->size));
  if (me->index == 0 && which == 1) t.l.fail_forward = GW_E_CALLER;
  if (me->index == 0 && which == 2) t.l.fail_backward = GW_E_IO;
  EXPECT_STATUS(gw_train_step(t.s.model, t.s.opt, &b, NULL, NULL, &r),
                me->index != 0 ? GW_E_ABORTED
                : which == 1   ? GW_E_CALLER
                               : GW_E_IO,
                "line");
  EXPECT(strstr(last_error().message, "line") != NULL);
  EXPECT(strstr(last_error().message, which == 1 ? "forward" : "backward_input") != NULL);
  if (me->size > 1) {
    /* The gangs of the step are broken, with the same text. */
    EXPECT(gw_gang_async_error(t.root) != GW_OK && strstr(last_error().message, "line") != NULL);
  } else {
    /* A rank that is alone goes on working. Each step lowers the loss equally: the failed one has left no
     * gradient. */
    t.l.fail_forward = t.l.fail_backward = GW_OK;
    EXPECT_OK(gw_gang_async_error(t.root));
    EXPECT_OK(gw_train_step(t.s.model, t.s.opt, &b, NULL, NULL, &r));
    const double second = r.loss;
    EXPECT_OK(gw_train_step(t.s.model, t.s.opt, &b, NULL, NULL, &r));
    EXPECT(r.step == 3 && second < 4 && fabs((second - r.loss) - (4 - second)) < 1e-6);
  }
  gw_gang_release(t.root);
  tear_down(&t.s);
  EXPECT(t.l.frees == 1 && t.freed == 1);
}

static void failing_callback_reaches_every_rank(void** state) {
  (void)state;
  for (int32_t n = 1; n <= 3; ++n)
    for (int which = 1; which <= 2; ++which) run_ranks(n, failing_callback, &which);
}

static void wrong_weight(rank* me) {
  line_setup t;
  EXPECT_OK(set_up_line(me, &t));
  float x[3] = {1, 2, 3};
  const int64_t shape[1] = {3};
  gw_view view;
  gw_batch b = line_batch(x, shape, &view);
  b.weight = me->index == me->size - 1 ? 2 : 3; /* its loss has weight 3 */
  EXPECT_REFUSED(gw_train_step(t.s.model, t.s.opt, &b, NULL, NULL, NULL), "the batch has 2");
  b.weight = 3;
  EXPECT_OK(gw_train_step(t.s.model, t.s.opt, &b, NULL, NULL, NULL));
  /* Seeds differ between data-parallel ranks, and repeat over steps only if the caller wants it. */
  double sum = 0;
  EXPECT_OK(gw_gang_all_sum(me->gang, (double)(t.l.seed >> 12), &sum));
  EXPECT(me->size == 1 || sum != (double)(t.l.seed >> 12) * me->size);
  gw_gang_release(t.root);
  tear_down(&t.s);
}

static void loss_of_another_weight_is_refused_on_every_rank(void** state) {
  (void)state;
  for (int32_t n = 1; n <= 2; ++n) run_ranks(n, wrong_weight, NULL);
}

static void nulls_are_refused(void** state) {
  (void)state;
  gw_module *model = NULL, *other = NULL, *described = NULL;
  gw_optimizer* opt = NULL;
  small_batch b;
  gw_step_result r;
  int64_t out[64];
  size_t count = 0;
  const int64_t prompt[1] = {1};
  const gw_decoder_options o = small_llama();
  gw_step_result_init(&r, sizeof r);
  fill_batch(&b, 1, 0);
  assert_ok(gw_decoder_create(&o, &model));
  assert_ok(gw_decoder_create(&o, &other));
  assert_ok(gw_decoder_create(&o, &described));
  assert_ok(gw_parallelize(model, NULL, NULL));
  assert_ok(gw_parallelize(other, NULL, NULL));
  assert_ok(gw_sgd_create(other, NULL, &opt));
  assert_refused(gw_train_step(NULL, opt, &b.batch, NULL, NULL, &r), "model is null");
  assert_refused(gw_train_step(model, NULL, &b.batch, NULL, NULL, &r), "optimizer is null");
  assert_refused(gw_train_step(model, opt, &b.batch, NULL, NULL, &r), "another model");
  assert_refused_as(gw_train_step(described, opt, &b.batch, NULL, NULL, &r), GW_E_INVALID_STATE,
                    "gw_parallelize");
  assert_refused(gw_eval_step(NULL, &b.batch, NULL, NULL, &r), "model is null");
  assert_refused_as(gw_eval_step(described, &b.batch, NULL, NULL, &r), GW_E_INVALID_STATE, "gw_parallelize");
  assert_refused(gw_generate(NULL, prompt, 1, NULL, NULL, out, 64, &count), "model is null");
  assert_refused_as(gw_generate(described, prompt, 1, NULL, NULL, out, 64, &count), GW_E_INVALID_STATE,
                    "gw_parallelize");
  gw_optimizer_release(opt);
  gw_module_release(model);
  gw_module_release(other);
  gw_module_release(described);
  gw_batch_init(NULL, 0);
  gw_step_options_init(NULL, 0);
  gw_step_result_init(NULL, 0);
  gw_generate_options_init(NULL, 0);
}

/* Columns [1, 5) of rows of six, as slices of a longer array are. */
static void a_batch_may_be_cut_out_of_a_longer_array(void** state) {
  (void)state;
  gw_module* model = materialized_llama();
  small_batch b;
  int64_t longer[2 * 6];
  const int64_t strides[2] = {6, 1}, shape[2] = {2, 4};
  gw_step_result dense, strided;
  gw_view cut;
  gw_tensor *from_dense = NULL, *from_cut = NULL;
  size_t count = 0;
  fill_batch(&b, 2, 0);
  for (int i = 0; i < 12; ++i) longer[i] = i % 6 == 0 || i % 6 == 5 ? 10 : b.tokens[i / 6 * 4 + i % 6 - 1];
  gw_step_result_init(&dense, sizeof dense);
  gw_step_result_init(&strided, sizeof strided);
  assert_ok(gw_eval_step(model, &b.batch, NULL, NULL, &dense));
  gw_step_result_init(&strided, sizeof strided);
  b.batch.target_count = 0; /* tokens alone: their labels are the next tokens */
  assert_ok(gw_eval_step(model, &b.batch, NULL, NULL, &strided));
  assert_true(strided.loss == dense.loss && strided.weight == dense.weight);
  b.batch.target_count = 1;
  assert_ok(gw_module_forward(model, &b.input, 1, NULL, NULL, &from_dense, 1, &count));
  gw_view_set(&cut, longer + 1, shape, 2, GW_I64);
  cut.strides = strides;
  b.batch.inputs = b.batch.targets = &cut;
  assert_ok(gw_eval_step(model, &b.batch, NULL, NULL, &strided));
  assert_true(strided.loss == dense.loss && strided.weight == dense.weight);
  assert_ok(gw_module_forward(model, &cut, 1, NULL, NULL, &from_cut, 1, &count));
  gw_view a, c;
  assert_ok(gw_tensor_view(from_dense, &a));
  assert_ok(gw_tensor_view(from_cut, &c));
  double dense_values[2 * 4 * 11], cut_values[2 * 4 * 11];
  take(dense_values, &a, NULL);
  take(cut_values, &c, NULL);
  assert_memory_equal(dense_values, cut_values, sizeof cut_values);
  gw_tensor_release(from_dense);
  gw_tensor_release(from_cut);
  gw_module_release(model);
}

int main(void) {
  const struct CMUnitTest tests[] = {test_on_device(training_gives_the_same_losses_on_any_mesh),
                                     test_on_device(one_ranks_bad_argument_comes_back_on_every_rank),
                                     test_on_device(a_step_gives_the_norm_of_each_gradient),
                                     test_on_device(a_batch_says_the_documents_and_positions_of_its_tokens),
                                     test_on_device(failing_callback_reaches_every_rank),
                                     test_on_device(loss_of_another_weight_is_refused_on_every_rank),
                                     test_on_device(a_batch_may_be_cut_out_of_a_longer_array),
                                     test_on_device(nulls_are_refused)};
  return cmocka_run_group_tests_name("capi_train", tests, NULL, NULL);
}

/* Parallelism in single calls, with plans as text, as structs and of a custom module. The results have the
 * same bits as those of gw_parallelize. Also calls out of order. */
#include <math.h>

#include "refusals.h"

enum { kRows = 4, kWidth = 6, kHidden = 8, kSteps = 3, kMost = kWidth * kHidden };

static const char* const plan_text = "0 -> colwise\n1 -> rowwise\n";

/* y = b(a(x)). The module has a plan for its children. */
static gw_status same_shape(void* user, gw_call* call) { return (void)user, (void)call, GW_OK; }
static gw_status two_forward(void* user, gw_call* call) {
  gw_view middle, y;
  size_t count = 0;
  (void)user;
  gw_status status = gw_call_forward(call, 0, call->inputs, 1, &middle, 1, &count);
  if (status == GW_OK) status = gw_call_forward(call, 1, &middle, 1, &y, 1, &count);
  if (status == GW_OK) pass_on(&call->outputs[0], &y, call);
  return status;
}
static gw_status two_backward(void* user, gw_call* call) {
  gw_view middle, dx;
  size_t count = 0;
  (void)user;
  gw_status status = gw_call_backward(call, 1, call->output_grads, 1, &middle, 1, &count);
  if (status == GW_OK) status = gw_call_backward(call, 0, &middle, 1, &dx, 1, &count);
  if (status == GW_OK && call->input_grads[0].data != NULL) pass_on(&call->input_grads[0], &dx, call);
  return status;
}

static gw_module* linears(const char* own_plan) {
  gw_module *parts[2], *model = NULL;
  if (gw_linear_create(kWidth, kHidden, 1, &parts[0]) != GW_OK) return NULL;
  if (gw_linear_create(kHidden, kWidth, 1, &parts[1]) != GW_OK) return NULL;
  if (own_plan == NULL) {
    gw_sequential_create(parts, 2, &model);
  } else {
    static const char* const names[2] = {"0", "1"};
    gw_custom_options c;
    gw_custom_options_init(&c, sizeof c);
    c.name = "two";
    c.shapes = same_shape;
    c.forward = two_forward;
    c.backward_input = two_backward;
    c.children = parts;
    c.child_names = names;
    c.child_count = 2;
    c.parallel_plan = own_plan;
    gw_custom_create(&c, &model);
  }
  gw_module_release(parts[0]);
  gw_module_release(parts[1]);
  return model;
}

static void plan_rows(gw_plan_row rows[2]) {
  static const char* const patterns[2] = {"0", "1"};
  for (int i = 0; i < 2; ++i) {
    gw_plan_row_init(&rows[i], sizeof rows[i]);
    rows[i].pattern = patterns[i];
    rows[i].style = i == 0 ? GW_STYLE_COLWISE : GW_STYLE_ROWWISE;
  }
}

typedef enum how { WHOLE, BY_ROWS, BY_BOTH, OWN_PLAN, PIECES, PIECES_OWN_PLAN, kWays } how;

static gw_status make(gw_gangs* gangs, how way, gw_module** out) {
  gw_plan_row rows[2];
  gw_tensor_parallel_options t;
  gw_parallel_options p;
  plan_rows(rows);
  gw_tensor_parallel_options_init(&t, sizeof t);
  gw_parallel_options_init(&p, sizeof p);
  p.tensor_parallel = &t;
  p.master_dtype = GW_F64;
  p.seed = 5;
  p.recompute = GW_RECOMPUTE_FULL;
  const int own = way == OWN_PLAN || way == PIECES_OWN_PLAN;
  if (way == WHOLE || way == PIECES) t.plan = plan_text;
  if (way == BY_ROWS) t.rows = rows, t.row_count = 2;
  if (way == BY_BOTH) t.plan = "0 -> colwise", t.rows = &rows[1], t.row_count = 1;
  *out = linears(own ? plan_text : NULL);
  if (way != PIECES && way != PIECES_OWN_PLAN) return gw_parallelize(*out, gangs, &p);
  gw_status status = gw_tensor_parallel(*out, gangs, own ? NULL : &t);
  if (status == GW_OK) status = gw_recompute(*out, GW_RECOMPUTE_FULL, 2, 1);
  if (status == GW_OK) status = gw_fully_shard(*out, "0", NULL, NULL);
  if (status == GW_OK) status = gw_fully_shard(*out, "1", NULL, NULL);
  if (status == GW_OK) status = gw_fully_shard(*out, "", NULL, NULL);
  if (status == GW_OK) status = gw_module_materialize(*out, gangs, 5, GW_F64);
  return status;
}

typedef struct numbers {
  double y[kSteps][kRows * kWidth], parameters[4][kMost];
} numbers;

static void trains(rank* me, gw_gangs* gangs, how way, numbers* out) {
  gw_module* model = NULL;
  gw_frame* frame = NULL;
  gw_optimizer* opt = NULL;
  gw_view x, dy, view;
  double in[kRows * kWidth], grads[kRows * kWidth];
  const int64_t shape[3] = {kRows, 1, kWidth};
  memset(out, 0, sizeof *out);
  EXPECT_OK(make(gangs, way, &model));
  EXPECT_OK(gw_frame_create(model, NULL, &frame));
  EXPECT_OK(gw_sgd_create(model, NULL, &opt));
  gw_view_set(&x, in, shape, 3, GW_F64);
  gw_view_set(&dy, grads, shape, 3, GW_F64);
  for (int step = 0; step < kSteps; ++step) {
    for (int i = 0; i < kRows * kWidth; ++i) in[i] = ((step + 1) * (i + 1) * 37 % 101) / 50.0 - 1;
    gw_tensor *y = NULL, *dx = NULL;
    size_t count = 0;
    EXPECT_OK(gw_module_forward(model, &x, 1, frame, NULL, &y, 1, &count));
    EXPECT_OK(gw_tensor_view(y, &view));
    take(out->y[step], &view, NULL);
    for (int i = 0; i < kRows * kWidth; ++i) grads[i] = out->y[step][i] - in[i];
    EXPECT_OK(gw_module_backward(model, &dy, 1, frame, NULL, &dx, 1, &count));
    EXPECT_OK(gw_optimizer_step(opt, NULL, NULL, NULL));
    gw_tensor_release(y);
    gw_tensor_release(dx);
  }
  for (size_t i = 0; i < 4; ++i) {
    gw_parameter* p = NULL;
    gw_tensor* whole = NULL;
    EXPECT_OK(gw_module_parameter(model, i, &p));
    EXPECT_OK(gw_parameter_gather(p, NULL, &whole));
    EXPECT_OK(gw_tensor_view(whole, &view));
    take(out->parameters[i], &view, NULL);
    gw_tensor_release(whole);
    gw_parameter_release(p);
  }
  gw_optimizer_release(opt);
  gw_frame_release(frame);
  gw_module_release(model);
}

static void every_way(rank* me) {
  gw_gangs* gangs = NULL;
  gw_mesh_options mesh;
  static _Thread_local numbers first, other;
  gw_mesh_options_init(&mesh, sizeof mesh);
  mesh.tp = *(const int32_t*)me->user;
  EXPECT_OK(gw_gangs_create(me->gang, &mesh, &gangs));
  for (int way = WHOLE; way < kWays; ++way) {
    trains(me, gangs, (how)way, way == WHOLE ? &first : &other);
    if (me->failure[0] != '\0') return;
    if (way == WHOLE) {
      EXPECT(first.y[0][0] != first.y[kSteps - 1][0]);
      continue;
    }
    EXPECT(memcmp(&first, &other, sizeof first) == 0);
  }
  gw_gangs_release(gangs);
}

static void pieces_and_rows_of_any_kind_give_the_bits_of_parallelize(void** state) {
  (void)state;
  for (int32_t tp = 1; tp <= 2; ++tp)
    for (int32_t ranks = tp; ranks <= 4; ranks += tp) run_ranks(ranks, every_way, &tp);
}

static const char* layout_of(gw_module* model, const char* name) {
  static _Thread_local char text[64];
  gw_parameter* p = NULL;
  gw_parameter_info info;
  gw_parameter_info_init(&info, sizeof info);
  text[0] = '\0';
  if (gw_module_find_parameter(model, name, &p) == GW_OK && gw_parameter_describe(p, &info) == GW_OK)
    snprintf(text, sizeof text, "%s", info.layout);
  gw_parameter_release(p);
  return text;
}

static void own_rows(rank* me) {
  gw_gangs* gangs = NULL;
  gw_tensor_parallel_options t;
  EXPECT_OK(gw_gangs_create_parallel(me->gang, 2, 1, 1, &gangs));
  for (int callers = 0; callers < 2; ++callers) {
    gw_module* model = linears("0 -> colwise, output whole\n1 -> replicate\n");
    gw_tensor_parallel_options_init(&t, sizeof t);
    if (callers) t.plan = "1 -> rowwise, input Replicate";
    EXPECT_OK(gw_tensor_parallel(model, gangs, &t));
    EXPECT_OK(gw_fully_shard(model, "", NULL, NULL));
    EXPECT_OK(gw_module_materialize(model, NULL, 1, GW_F64));
    EXPECT(strstr(layout_of(model, "0.weight"), "tp: Shard(0)") != NULL);
    EXPECT(strstr(layout_of(model, "1.weight"), callers ? "tp: Shard(1)" : "tp: Replicate") != NULL);
    gw_module_release(model);
  }
  gw_gangs_release(gangs);
}

static void a_custom_module_brings_rows_and_the_callers_win(void** state) {
  (void)state;
  run_ranks(2, own_rows, NULL);
  gw_module* model = NULL;
  gw_custom_options c;
  gw_custom_options_init(&c, sizeof c);
  c.forward = two_forward;
  c.backward_input = two_backward;
  c.parallel_plan = "0 -> colwise\n1 -> sideways";
  assert_refused(gw_custom_create(&c, &model), "options.parallel_plan: plan line 2 \"1 -> sideways\"");
}

static gw_gangs* fake_gangs(int32_t tp, int32_t cp, gw_gang** root) {
  gw_gangs* gangs = NULL;
  assert_ok(gw_gang_create_fake(0, tp * cp, NULL, root));
  assert_ok(gw_gangs_create_parallel(*root, tp, 1, cp, &gangs));
  return gangs;
}

static void plan_rows_that_do_not_fit_are_refused(void** state) {
  (void)state;
  gw_gang* root = NULL;
  gw_gangs* tp = fake_gangs(2, 1, &root);
  gw_module* m = linears(NULL);
  gw_plan_row rows[2];
  gw_tensor_parallel_options t;
  gw_tensor_parallel_options_init(&t, sizeof t);
  t.rows = rows;
  t.row_count = 2;
#define ROWS(change, code, part) \
  plan_rows(rows);               \
  change;                        \
  ROW(gw_tensor_parallel(m, tp, &t), code, part)
  ROWS(rows[1].pattern = NULL, INVALID_ARGUMENT, "options.rows[1].pattern is null");
  ROWS(rows[1].pattern = "2", NOT_FOUND, "plan row \"2 -> rowwise\": no module");
  ROWS(rows[1].style = 7, INVALID_ARGUMENT, "options.rows[1] for \"1\": style is 7, not 0 to 6");
  ROWS(rows[1].style = -1, INVALID_ARGUMENT, "options.rows[1] for \"1\": style is -1");
  ROWS(rows[1].input = 5, INVALID_ARGUMENT, "options.rows[1] for \"1\": input is 5, not 0 to 4");
  ROWS(rows[0].output = -1, INVALID_ARGUMENT, "options.rows[0] for \"0\": output is -1");
  ROWS(rows[1].input_dim = 1, INVALID_ARGUMENT, "input_dim is 1, but input is no GW_PLACEMENT_SHARD");
  ROWS((rows[0].output = GW_PLACEMENT_SHARD, rows[0].output_dim = 8), INVALID_ARGUMENT, "no dim 8");
  ROWS((rows[0].style = GW_STYLE_REPLICATE, rows[0].output = GW_PLACEMENT_PARTIAL), INVALID_ARGUMENT,
       "options.rows[0] for \"0\": replicate takes no output");
  ROWS((rows[0].style = GW_STYLE_PREPARE_INPUT, rows[0].input = GW_PLACEMENT_REPLICATE), INVALID_ARGUMENT,
       "prepare_input takes two layouts, but output is missing");
  ROWS((rows[0].style = GW_STYLE_PREPARE_OUTPUT, rows[0].output = GW_PLACEMENT_REPLICATE), INVALID_ARGUMENT,
       "prepare_output takes two layouts, but input is missing");
  ROWS(rows[0].struct_size = 8, INVALID_ARGUMENT, "struct_size");
  ROWS(rows[1].output = GW_PLACEMENT_PARTIAL, INVALID_ARGUMENT, "plan row \"1 -> rowwise, output Partial\"");
  ROWS(t.plan = "0 -> replicate", INVALID_ARGUMENT, "are both for 0; a module has one row");
  ROWS(t.plan = "1 -> up", INVALID_ARGUMENT, "plan line 1 \"1 -> up\"");
  t.plan = NULL;
  ROWS(t.overlap_chunks = 0, INVALID_ARGUMENT, "overlap_chunks is 0; it must be 1");
  ROWS(t.overlap_chunks = 2, INVALID_ARGUMENT,
       "overlap_chunks is 2, but no row of the plan gathers a sequence");
  t.overlap_chunks = 1;
  ROWS(t.rows = NULL, INVALID_ARGUMENT, "options.rows is null");
  ROW(gw_tensor_parallel(m, tp, NULL), NOT_SUPPORTED, "tp is 2, but there is no tensor parallel plan");
  t.rows = rows;
  plan_rows(rows);
  assert_ok(gw_tensor_parallel(m, tp, &t)); /* the refused calls have changed nothing */
  gw_module_release(m);
  gw_gangs_release(tp);
  gw_gang_release(root);
  end_of_table();
}

static gw_module* llama(void) {
  gw_module* m = NULL;
  gw_decoder_options o = small_llama();
  o.vocab = 12;
  o.kv_heads = 2;
  assert_ok(gw_decoder_create(&o, &m));
  return m;
}

static void calls_out_of_order_are_refused(void** state) {
  (void)state;
  gw_gang* root = NULL;
  gw_gangs* both = fake_gangs(2, 2, &root);
  gw_module *m = llama(), *again = llama(), *none = linears(NULL);
  ROW(gw_fully_shard(m, "", both, NULL), INVALID_STATE, "tensor_parallel comes first");
  ROW(gw_replicate(m, both, NULL), INVALID_STATE, "tensor_parallel comes first");
  ROW(gw_module_materialize(m, both, 1, 0), INVALID_STATE, "tensor_parallel comes first");
  ROW(gw_context_parallel(m, both, 3), INVALID_ARGUMENT, "method is 3, not 0 to 2");
  ROW(gw_context_parallel(none, both, GW_CONTEXT_RING), INVALID_ARGUMENT, "holds no attention");
  assert_ok(gw_tensor_parallel(m, both, NULL));
  ROW(gw_tensor_parallel(m, both, NULL), INVALID_STATE, "split over tp already");
  ROW(gw_fully_shard(m, "", both, NULL), INVALID_STATE, "context_parallel comes first");
  assert_ok(gw_context_parallel(m, both, GW_CONTEXT_ALL_GATHER));
  ROW(gw_context_parallel(m, both, GW_CONTEXT_RING), INVALID_STATE, "already");
  assert_ok(gw_recompute(m, GW_RECOMPUTE_FULL, 2, 1));
  assert_ok(gw_fully_shard(m, "model.layers.*", both, NULL));
  ROW(gw_tensor_parallel(m, both, NULL), INVALID_STATE, "comes before fully_shard and replicate");
  ROW(gw_context_parallel(m, both, GW_CONTEXT_RING), INVALID_STATE, "comes before fully_shard and replicate");
  ROW(gw_recompute(m, GW_RECOMPUTE_FULL, 2, 1), INVALID_STATE, "comes before gw_fully_shard");
  ROW(gw_parallelize(m, both, NULL), INVALID_STATE, "parallelize makes all parameter groups itself");
  assert_ok(gw_fully_shard(m, "", both, NULL));
  assert_ok(gw_module_materialize(m, both, 1, 0));
  ROW(gw_tensor_parallel(m, both, NULL), INVALID_STATE, "gw_tensor_parallel comes before");
  ROW(gw_context_parallel(m, both, GW_CONTEXT_RING), INVALID_STATE, "gw_context_parallel comes before");
  /* gw_parallelize does what has not been done yet. */
  assert_ok(gw_tensor_parallel(again, both, NULL));
  assert_ok(gw_recompute(again, GW_RECOMPUTE_SELECTIVE, 2, 1));
  gw_tensor_parallel_options t;
  gw_parallel_options p;
  gw_tensor_parallel_options_init(&t, sizeof t);
  gw_parallel_options_init(&p, sizeof p);
  t.plan = "lm_head -> replicate";
  p.tensor_parallel = &t;
  ROW(gw_parallelize(again, both, &p), INVALID_STATE, "split over tp already");
  assert_ok(gw_parallelize(again, both, NULL));
  gw_module_release(m);
  gw_module_release(again);
  gw_module_release(none);
  gw_gangs_release(both);
  gw_gang_release(root);
  end_of_table();
}

/* A Llama over tp x cp in single calls has the losses of gw_parallelize. */
static void llama_pieces(rank* me) {
  gw_gangs* gangs = NULL;
  double losses[2][2];
  EXPECT_OK(gw_gangs_create_parallel(me->gang, 2, 1, 2, &gangs));
  for (int by = 0; by < 2; ++by) {
    gw_module* model = NULL;
    gw_optimizer* opt = NULL;
    gw_decoder_options o = small_llama();
    gw_parallel_options p;
    gw_tensor_parallel_options t;
    gw_step_result result;
    small_batch b;
    o.vocab = 12;
    o.kv_heads = 2;
    gw_parallel_options_init(&p, sizeof p);
    gw_tensor_parallel_options_init(&t, sizeof t);
    gw_step_result_init(&result, sizeof result);
    fill_batch(&b, 2, 0);
    t.sequence_parallel = 1;
    p.tensor_parallel = &t;
    p.context_method = GW_CONTEXT_ALL_GATHER;
    p.master_dtype = GW_F64;
    EXPECT_OK(gw_decoder_create(&o, &model));
    if (by == 0) {
      EXPECT_OK(gw_parallelize(model, gangs, &p));
    } else {
      EXPECT_OK(gw_tensor_parallel(model, gangs, &t));
      EXPECT_OK(gw_context_parallel(model, gangs, GW_CONTEXT_ALL_GATHER));
      EXPECT_OK(gw_fully_shard(model, "model.embed_tokens", gangs, NULL));
      EXPECT_OK(gw_fully_shard(model, "model.layers.*", gangs, NULL));
      EXPECT_OK(gw_fully_shard(model, "", gangs, NULL));
      EXPECT_OK(gw_module_materialize(model, gangs, 0, GW_F64));
    }
    EXPECT_OK(gw_sgd_create(model, NULL, &opt));
    for (int step = 0; step < 2; ++step) {
      EXPECT_OK(gw_train_step(model, opt, &b.batch, NULL, NULL, &result));
      losses[by][step] = result.loss;
    }
    gw_optimizer_release(opt);
    gw_module_release(model);
  }
  EXPECT(memcmp(losses[0], losses[1], sizeof losses[0]) == 0);
  gw_gangs_release(gangs);
}

static void a_llama_by_pieces_has_the_losses_of_parallelize(void** state) {
  (void)state;
  run_ranks(4, llama_pieces, NULL);
}

/* Sequences that travel in chunks give the same losses up to rounding. A part has 2 tokens. */
static void llama_in_chunks(rank* me) {
  gw_gangs* gangs = NULL;
  double losses[2][2];
  EXPECT_OK(gw_gangs_create_parallel(me->gang, 2, 1, 1, &gangs));
  for (int32_t chunks = 1; chunks <= 3; ++chunks) {
    gw_module* model = llama();
    gw_optimizer* opt = NULL;
    gw_parallel_options p;
    gw_tensor_parallel_options t;
    gw_step_result result;
    small_batch b;
    gw_parallel_options_init(&p, sizeof p);
    gw_tensor_parallel_options_init(&t, sizeof t);
    gw_step_result_init(&result, sizeof result);
    fill_batch(&b, 2, 0);
    t.sequence_parallel = 1;
    t.overlap_chunks = chunks;
    p.tensor_parallel = &t;
    p.master_dtype = GW_F64;
    EXPECT_OK(gw_parallelize(model, gangs, &p));
    EXPECT_OK(gw_sgd_create(model, NULL, &opt));
    if (chunks == 3) {
      EXPECT_STATUS(gw_train_step(model, opt, &b.batch, NULL, NULL, &result), GW_E_INVALID_ARGUMENT,
                    "overlap_chunks is 3, which does not divide the 2 tokens");
    } else {
      for (int step = 0; step < 2; ++step) {
        EXPECT_OK(gw_train_step(model, opt, &b.batch, NULL, NULL, &result));
        losses[chunks - 1][step] = result.loss;
      }
    }
    gw_optimizer_release(opt);
    gw_module_release(model);
  }
  for (int step = 0; step < 2; ++step)
    EXPECT(fabs(losses[1][step] - losses[0][step]) < 1e-12 * fabs(losses[0][step]));
  gw_gangs_release(gangs);
}

static void chunks_of_the_sequence_change_no_loss(void** state) {
  (void)state;
  run_ranks(2, llama_in_chunks, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {test_on_device(pieces_and_rows_of_any_kind_give_the_bits_of_parallelize),
                                     test_on_device(a_custom_module_brings_rows_and_the_callers_win),
                                     test_on_device(plan_rows_that_do_not_fit_are_refused),
                                     test_on_device(calls_out_of_order_are_refused),
                                     test_on_device(a_llama_by_pieces_has_the_losses_of_parallelize),
                                     test_on_device(chunks_of_the_sequence_change_no_loss)};
  return cmocka_run_group_tests_name("capi_piecewise_parallelism", tests, NULL, NULL);
}

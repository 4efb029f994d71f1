/* Custom modules whose callbacks call collectives on call->gangs, while collectives of the library itself are
 * on their way. */
#include <math.h>

#include "device_memory.h"

enum { kMostRows = 8 };

/* y = w (x - m), where m is the mean of x over the rows of all ranks. */
typedef struct centre {
  int forwards, again, backwards;
} centre;

/* Sums in memory of the gang's device. */
static gw_status sum_over_ranks(gw_call* call, double* values, size_t count) {
  gw_gang* gang = NULL;
  void* block = NULL;
  gw_view there = call->inputs[0];
  const int64_t shape[1] = {(int64_t)count};
  gw_status status = gw_gangs_get(call->gangs, "dp", &gang);
  if (status == GW_OK) status = gw_gang_alloc(gang, count * sizeof *values, &block);
  if (status != GW_OK) return status;
  there.data = block;
  there.ndim = 1;
  there.shape = shape;
  give(&there, values, call);
  status = gw_gang_all_reduce(gang, block, block, count, GW_F64, GW_SUM, call->stream);
  if (status == GW_OK) take(values, &there, call);
  gw_gang_free(gang, block);
  gw_gang_release(gang);
  return status;
}

static gw_status same_shape(void* user, gw_call* call) {
  (void)user;
  (void)call;
  return GW_OK;
}
static gw_status centre_forward(void* user, gw_call* call) {
  centre* c = user;
  const int64_t rows = call->inputs[0].shape[0];
  double w, x[kMostRows], y[kMostRows];
  take(&w, &call->parameters[0], call);
  take(x, &call->inputs[0], call);
  double* state = calloc(2, sizeof(double)); /* m, and the rows of all ranks */
  *call->state = state;
  ++c->forwards;
  c->again += call->recomputing;
  for (int64_t i = 0; i < rows; ++i) state[0] += x[i];
  state[1] = (double)rows;
  const gw_status status = sum_over_ranks(call, state, 2);
  if (status != GW_OK) return status;
  state[0] /= state[1];
  for (int64_t i = 0; i < rows; ++i) y[i] = w * (x[i] - state[0]);
  give(&call->outputs[0], y, call);
  return GW_OK;
}
static gw_status centre_backward(void* user, gw_call* call) {
  const double* const state = *call->state;
  const int64_t rows = call->inputs[0].shape[0];
  double w, dw, x[kMostRows], dy[kMostRows], dx[kMostRows], sum = 0;
  take(&w, &call->parameters[0], call);
  take(&dw, &call->parameter_grads[0], call);
  take(x, &call->inputs[0], call);
  take(dy, &call->output_grads[0], call);
  ++((centre*)user)->backwards;
  for (int64_t i = 0; i < rows; ++i) {
    sum += dy[i];
    dw += dy[i] * (x[i] - state[0]);
  }
  give(&call->parameter_grads[0], &dw, call);
  const gw_status status = sum_over_ranks(call, &sum, 1);
  if (status != GW_OK) return status;
  for (int64_t i = 0; i < rows; ++i) dx[i] = w * (dy[i] - sum / state[1]);
  give(&call->input_grads[0], dx, call);
  return GW_OK;
}

/* The loss: {sum of y^3 / 6, rows}. */
static gw_status loss_shapes(void* user, gw_call* call) {
  (void)user;
  for (int32_t i = 0; i < 2; ++i) {
    call->outputs[i].ndim = 1;
    call->outputs[i].dtype = GW_F64;
    ((int64_t*)call->outputs[i].shape)[0] = 1;
  }
  return GW_OK;
}
static gw_status loss_forward(void* user, gw_call* call) {
  (void)user;
  const double rows = (double)call->inputs[0].shape[0];
  double y[kMostRows], sum = 0;
  take(y, &call->inputs[0], call);
  for (int64_t i = 0; i < call->inputs[0].shape[0]; ++i) sum += y[i] * y[i] * y[i] / 6;
  give(&call->outputs[0], &sum, call);
  give(&call->outputs[1], &rows, call);
  return GW_OK;
}
static gw_status loss_backward(void* user, gw_call* call) {
  (void)user;
  double y[kMostRows], dy[kMostRows];
  take(y, &call->inputs[0], call);
  for (int64_t i = 0; i < call->inputs[0].shape[0]; ++i) dy[i] = call->loss_scale * y[i] * y[i] / 2;
  give(&call->input_grads[0], dy, call);
  return GW_OK;
}

static int64_t rows_of(int32_t rank) { return 2 + rank; }
static double input(int32_t rank, int64_t row) { return sin(1.0 + 3.0 * rank + (double)row); }

/* Loss and gradients of a and w over all rows at once. The input of the module is a x. */
typedef struct expected {
  double loss, da, dw;
} expected;
static expected by_loops(int32_t ranks, double a, double w) {
  double x[kMostRows * 8], mean = 0, mean_dy = 0;
  int64_t n = 0;
  for (int32_t r = 0; r < ranks; ++r)
    for (int64_t i = 0; i < rows_of(r); ++i) x[n++] = input(r, i);
  for (int64_t i = 0; i < n; ++i) mean += a * x[i] / (double)n;
  expected e = {0, 0, 0};
  for (int64_t i = 0; i < n; ++i) {
    const double centred = a * x[i] - mean, y = w * centred, dy = y * y / 2 / (double)n;
    e.loss += y * y * y / 6 / (double)n;
    e.dw += dy * centred;
    mean_dy += dy / (double)n;
  }
  for (int64_t i = 0; i < n; ++i) {
    const double y = w * (a * x[i] - mean);
    e.da += w * (y * y / 2 / (double)n - mean_dy) * x[i];
  }
  return e;
}

static gw_module* make_model(centre* c) {
  gw_module *parts[3] = {NULL, NULL, NULL}, *model = NULL;
  gw_custom_options options;
  gw_parameter_options w;
  gw_init_options ones;
  gw_init_options_init(&ones, sizeof ones);
  ones.kind = GW_INIT_ONES;
  gw_parameter_options_init(&w, sizeof w);
  w.name = "w";
  w.ndim = 1;
  w.dims[0] = 1;
  w.initializer = &ones;
  gw_custom_options_init(&options, sizeof options);
  options.name = "centre";
  options.shapes = same_shape;
  options.forward = centre_forward;
  options.backward_input = centre_backward;
  options.user = c;
  options.free_state = free;
  options.parameters = &w;
  options.parameter_count = 1;
  if (gw_linear_create(1, 1, 0, &parts[0]) != GW_OK) return NULL;
  if (gw_custom_create(&options, &parts[1]) != GW_OK) return NULL;
  gw_custom_options_init(&options, sizeof options);
  options.name = "cubes";
  options.shapes = loss_shapes;
  options.forward = loss_forward;
  options.backward_input = loss_backward;
  options.output_count = 2;
  if (gw_custom_create(&options, &parts[2]) != GW_OK) return NULL;
  if (gw_sequential_create(parts, 3, &model) != GW_OK) return NULL;
  for (int i = 0; i < 3; ++i) gw_module_release(parts[i]);
  return model;
}

static double parameter_of(gw_module* model, const char* name, int gradient) {
  gw_parameter* parameter = NULL;
  gw_tensor* whole = NULL;
  gw_view view;
  double value = NAN;
  if (gw_module_find_parameter(model, name, &parameter) != GW_OK) return value;
  const gw_status status = gradient ? gw_parameter_gather_gradient(parameter, NULL, &whole)
                                    : gw_parameter_gather(parameter, NULL, &whole);
  if (status == GW_OK && gw_tensor_view(whole, &view) == GW_OK) value = at(&view, 0);
  gw_tensor_release(whole);
  gw_parameter_release(parameter);
  return value;
}

typedef struct way {
  gw_strategy strategy;
  gw_recompute_kind recompute;
} way;

static int near(double got, double want) { return fabs(got - want) <= 1e-12 * (fabs(want) + 1e-3); }

/* Manual forward and backward. */
static void expect_gradients(rank* me, gw_module* model, const gw_view* x, double n, const centre* c) {
  const int recomputes = ((const way*)me->user)->recompute == GW_RECOMPUTE_FULL;
  const expected want = by_loops(me->size, parameter_of(model, "0.weight", 0), 1);
  gw_frame_options o;
  gw_frame_options_init(&o, sizeof o);
  o.loss_scale = 1 / n;
  gw_frame* frame = NULL;
  gw_tensor* out[2];
  size_t count = 0;
  EXPECT_OK(gw_frame_create(model, &o, &frame));
  EXPECT_OK(gw_module_forward(model, x, 1, frame, NULL, out, 2, &count));
  for (size_t i = 0; i < count; ++i) gw_tensor_release(out[i]);
  EXPECT_OK(gw_module_backward(model, NULL, 0, frame, NULL, out, 2, &count));
  for (size_t i = 0; i < count; ++i) gw_tensor_release(out[i]);
  EXPECT(c->forwards == 1 + recomputes && c->again == recomputes && c->backwards == 1);
  EXPECT(near(parameter_of(model, "0.weight", 1), want.da));
  EXPECT(near(parameter_of(model, "1.w", 1), want.dw));
  gw_frame_release(frame);
  EXPECT_OK(gw_zero_grad(model, NULL));
}

/* Two steps, in which clipping, the version gate and the reductions run collectives as well. */
static void expect_steps(rank* me, gw_module* model, const gw_view* x) {
  gw_sgd_options o;
  gw_optimizer* sgd = NULL;
  gw_batch batch;
  gw_step_options step;
  gw_step_result result;
  gw_sgd_options_init(&o, sizeof o);
  o.lr = 0.125;
  EXPECT_OK(gw_sgd_create(model, &o, &sgd));
  gw_batch_init(&batch, sizeof batch);
  batch.inputs = x;
  batch.input_count = 1;
  batch.weight = x->shape[0];
  gw_step_options_init(&step, sizeof step);
  step.max_grad_norm = 1e9;
  double a = parameter_of(model, "0.weight", 0), w = 1;
  for (int i = 0; i < 2; ++i) {
    const expected want = by_loops(me->size, a, w);
    gw_step_result_init(&result, sizeof result);
    EXPECT_OK(gw_train_step(model, sgd, &batch, &step, NULL, &result));
    EXPECT(near(result.loss, want.loss));
    EXPECT(near(result.grad_norm, sqrt(want.da * want.da + want.dw * want.dw)));
    a -= o.lr * want.da;
    w -= o.lr * want.dw;
  }
  EXPECT(near(parameter_of(model, "0.weight", 0), a));
  EXPECT(near(parameter_of(model, "1.w", 0), w));
  gw_optimizer_release(sgd);
}

static void calls_collectives(rank* me) {
  const way* how = me->user;
  gw_gangs* gangs = NULL;
  centre c = {0, 0, 0};
  EXPECT_OK(gw_gangs_create(me->gang, NULL, &gangs));
  gw_module* model = make_model(&c);
  EXPECT(model != NULL);
  gw_parallel_options p;
  gw_shard_options s;
  gw_parallel_options_init(&p, sizeof p);
  gw_shard_options_init(&s, sizeof s);
  p.shard = &s;
  s.strategy = how->strategy;
  p.recompute = how->recompute;
  p.master_dtype = GW_F64;
  p.seed = 5;
  EXPECT_OK(gw_parallelize(model, gangs, &p));
  double rows[kMostRows], n = 0;
  const int64_t shape[2] = {rows_of(me->index), 1};
  for (int64_t i = 0; i < shape[0]; ++i) rows[i] = input(me->index, i);
  for (int32_t r = 0; r < me->size; ++r) n += (double)rows_of(r);
  gw_view x;
  gw_view_set(&x, rows, shape, 2, GW_F64);
  expect_gradients(me, model, &x, n, &c);
  if (me->failure[0] == '\0') expect_steps(me, model, &x);
  gw_module_release(model);
  if (me->failure[0] != '\0') return;
  EXPECT_OK(gw_gangs_shutdown(gangs, -1));
  gw_gangs_release(gangs);
}

static void callbacks_call_collectives_on_the_calls_gangs(void** state) {
  (void)state;
  const gw_strategy strategies[] = {GW_FULL_SHARD, GW_SHARD_GRAD_OP, GW_NO_SHARD};
  const gw_recompute_kind kinds[] = {GW_RECOMPUTE_NONE, GW_RECOMPUTE_FULL};
  for (int32_t n = 1; n <= 3; ++n)
    for (int s = 0; s < 3; ++s)
      for (int k = 0; k < 2; ++k) {
        way how = {strategies[s], kinds[k]};
        run_ranks(n, calls_collectives, &how);
      }
}

int main(void) {
  const struct CMUnitTest tests[] = {test_on_device(callbacks_call_collectives_on_the_calls_gangs)};
  return cmocka_run_group_tests_name("capi_custom_gangs", tests, NULL, NULL);
}

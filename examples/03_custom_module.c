/* Own compute as a module: a regression y = tanh(x W^T + b), written in C, sharded and trained like a built-in layer.
 *   gangrun -n 2 03_custom_module */
#include <gangway/gangway.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kIn = 8, kOut = 3 };

static int report(void) {
  gw_error_info e;
  gw_error_info_init(&e, sizeof e);
  gw_last_error(&e);
  fprintf(stderr, "%s: %s\n", gw_status_name(e.code), e.message);
  return 1;
}

/* inputs: x [rows, kIn], y [rows, kOut]; outputs: loss sum [1], weight [1] */
static gw_status shapes(void *user, gw_call *call) {
  (void)user;
  for (int32_t o = 0; o < call->output_count; ++o) {
    call->outputs[o].ndim = 1;
    call->outputs[o].dtype = GW_F64;
    ((int64_t *)call->outputs[o].shape)[0] = 1;
  }
  return GW_OK;
}

static gw_status forward(void *user, gw_call *call) {
  (void)user;
  const long rows = call->inputs[0].shape[0];
  const float *x = call->inputs[0].data, *y = call->inputs[1].data;
  const float *w = call->parameters[0].data, *b = call->parameters[1].data;
  float *error = malloc((size_t)(rows * kOut + 1) * sizeof *error); /* d loss / d (x W^T + b), kept for backward */
  if (error == NULL) return GW_E_OUT_OF_MEMORY;
  double loss = 0;
  for (long r = 0; r < rows; ++r)
    for (int o = 0; o < kOut; ++o) {
      float z = b[o];
      for (int i = 0; i < kIn; ++i) z += x[r * kIn + i] * w[o * kIn + i];
      const float t = tanhf(z), difference = t - y[r * kOut + o];
      loss += 0.5 * difference * difference;
      error[r * kOut + o] = difference * (1 - t * t);
    }
  *(double *)call->outputs[0].data = loss;
  *(double *)call->outputs[1].data = (double)rows;
  *call->state = error;
  return GW_OK;
}

static gw_status backward_input(void *user, gw_call *call) {
  (void)user;
  for (int32_t i = 0; i < call->input_count; ++i)
    if (call->input_grads[i].data != NULL) /* data: nobody needs its gradient, but it may be asked for */
      memset(call->input_grads[i].data, 0,
             (size_t)call->input_grads[i].shape[0] * (size_t)call->input_grads[i].shape[1] * sizeof(float));
  return GW_OK;
}

static gw_status backward_weight(void *user, gw_call *call) {
  (void)user;
  const long rows = call->inputs[0].shape[0];
  const float *x = call->inputs[0].data, *error = *call->state;
  float *dw = call->parameter_grads[0].data, *db = call->parameter_grads[1].data;
  for (long r = 0; r < rows; ++r)
    for (int o = 0; o < kOut; ++o) {
      const float e = error[r * kOut + o] * (float)call->loss_seed; /* 1/N: the mean over all ranks */
      db[o] += e;
      for (int i = 0; i < kIn; ++i) dw[o * kIn + i] += e * x[r * kIn + i];
    }
  return GW_OK;
}

/* Only f32 compute is written above; other precisions are refused when the model is parallelised. */
static int32_t accepts(void *user, gw_dtype dtype) {
  (void)user;
  return dtype == GW_F32;
}

int main(void) {
  gw_parameter_options parameters[2];
  for (int i = 0; i < 2; ++i) gw_parameter_options_init(&parameters[i], sizeof parameters[i]);
  gw_init_options zeros;
  gw_init_options_init(&zeros, sizeof zeros);
  zeros.kind = GW_INIT_ZEROS;
  parameters[0].name = "weight";
  parameters[0].ndim = 2;
  parameters[0].dims[0] = kOut;
  parameters[0].dims[1] = kIn;
  parameters[1].name = "bias";
  parameters[1].ndim = 1;
  parameters[1].dims[0] = kOut;
  parameters[1].initializer = &zeros;

  gw_custom_options c;
  gw_custom_options_init(&c, sizeof c);
  c.name = "regression";
  c.shapes = shapes;
  c.forward = forward;
  c.backward_input = backward_input;
  c.backward_weight = backward_weight;
  c.accepts_dtype = accepts;
  c.free_state = free;
  c.input_count = 2;
  c.output_count = 2;
  c.parameters = parameters;
  c.parameter_count = 2;

  gw_gangs *gangs = NULL;
  gw_module *model = NULL;
  gw_optimizer *opt = NULL;
  if (gw_gangs_create(NULL, NULL, &gangs) != GW_OK) return report();
  if (gw_custom_create(&c, &model) != GW_OK) return report();
  if (gw_parallelize(model, gangs, NULL) != GW_OK) return report();
  gw_adamw_options adamw;
  gw_adamw_options_init(&adamw, sizeof adamw);
  adamw.lr = 0.05;
  if (gw_adamw_create(model, &adamw, &opt) != GW_OK) return report();

  int32_t shard = 0, shards = 1;
  gw_gangs_data_shard(gangs, &shard, &shards);
  enum { kRows = 64 };
  float x[kRows * kIn], y[kRows * kOut];
  const int64_t x_shape[2] = {kRows, kIn}, y_shape[2] = {kRows, kOut};
  gw_view inputs[2];
  gw_view_set(&inputs[0], x, x_shape, 2, GW_F32);
  gw_view_set(&inputs[1], y, y_shape, 2, GW_F32);
  gw_batch batch;
  gw_batch_init(&batch, sizeof batch);
  batch.inputs = inputs;
  batch.input_count = 2;
  batch.weight = kRows;
  gw_step_result result;
  gw_step_result_init(&result, sizeof result);
  srand(7 + (unsigned)shard);
  for (int step = 1; step <= 100; ++step) {
    for (int r = 0; r < kRows; ++r) { /* the truth: y = tanh(sum of inputs with a sign by output) */
      float sum = 0;
      for (int i = 0; i < kIn; ++i) sum += x[r * kIn + i] = (float)rand() / (float)RAND_MAX - 0.5f;
      for (int o = 0; o < kOut; ++o) y[r * kOut + o] = tanhf(o == 1 ? -sum : sum);
    }
    if (gw_train_step(model, opt, &batch, NULL, NULL, &result) != GW_OK) return report();
    if (shard == 0 && step % 20 == 0) printf("step %d  loss %.5f\n", step, result.loss);
  }
  const int learned = result.loss < 0.01;
  gw_optimizer_release(opt);
  gw_module_release(model);
  if (gw_gangs_shutdown(gangs, -1) != GW_OK) return report();
  gw_gangs_release(gangs);
  return learned ? 0 : 1;
}

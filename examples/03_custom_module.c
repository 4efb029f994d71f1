/* Own compute as a module: a regression, written in C, sharded and trained like a built-in layer.
 *   gangrun -n 2 03_custom_module */
#include "example.h"

enum { kFeatures = 8, kRows = 64, kCount = kRows * kFeatures };

/* Half the sum of squared errors of y = w x; the true w[i] is i / 8. Adds its gradient times `seed` to dw. */
static double own_compute(const float *w, const float *x, float *dw, double seed) {
  double loss = 0, sums[kFeatures] = {0};
  for (int r = 0; r < kRows; ++r, x += kFeatures) {
    double error = 0;
    for (int i = 0; i < kFeatures; ++i) error += (w[i] - i / 8.0) * x[i];
    for (int i = 0; i < kFeatures; ++i) sums[i] += error * x[i];
    loss += 0.5 * error * error;
  }
  for (int i = 0; i < kFeatures && dw != NULL; ++i) dw[i] += (float)(seed * sums[i]);
  return loss;
}

/* x [kRows, kFeatures] -> the sum of the losses, and their weight. Rows are f32: a module that takes other
 * types says so by accepts_dtype. */
static gw_status forward(void *user, gw_call *call) {
  *(double *)call->outputs[0].data = own_compute(call->parameters[0].data, call->inputs[0].data, NULL, 0);
  *(double *)call->outputs[1].data = kRows;
  return GW_OK;
}

/* The gradient of w. Rows are data: if their gradient is wanted all the same, it is zero. */
static gw_status backward(void *user, gw_call *call) {
  float *dw = call->parameter_grads[0].data;
  own_compute(call->parameters[0].data, call->inputs[0].data, dw, call->loss_scale);
  float *dx = call->input_grads[0].data;
  for (int i = 0; i < kCount && dx != NULL; ++i) dx[i] = 0;
  return GW_OK;
}

/* Rows from number `first` on: made up, and the same in every language. */
static void make_rows(float *x, int64_t first) {
  for (int i = 0; i < kCount; ++i) {
    const int64_t row = first + i / kFeatures;
    x[i] = (float)(row * (i % kFeatures + 1) * 97 % 1021 - 510) / 1024;
  }
}

int main(void) {
  WITH_DEFAULTS(gw_parameter_options, weight);
  weight.name = "w";
  weight.ndim = 1;
  weight.dims[0] = kFeatures;
  WITH_DEFAULTS(gw_custom_options, custom);
  custom.forward = forward;
  custom.backward_input = backward;
  custom.output_count = 2;
  custom.parameters = &weight;
  custom.parameter_count = 1;

  gw_gangs *gangs;
  gw_module *model;
  check(gw_gangs_create(NULL, NULL, &gangs));
  check(gw_custom_create(&custom, &model));
  check(gw_parallelize(model, gangs, NULL));

  gw_optimizer *opt;
  WITH_DEFAULTS(gw_adamw_options, adamw);
  adamw.lr = 0.02;
  check(gw_adamw_create(model, &adamw, &opt));

  int32_t shard, shards;
  check(gw_gangs_data_shard(gangs, &shard, &shards));
  float x[kCount];
  gw_view rows;
  check(gw_view_set(&rows, x, (int64_t[]){kRows, kFeatures}, 2, GW_F32));
  WITH_DEFAULTS(gw_batch, batch);
  batch.inputs = &rows;
  batch.input_count = 1;
  batch.weight = kRows;

  WITH_DEFAULTS(gw_step_result, result);
  for (int step = 1; step <= 100; ++step) {
    make_rows(x, (int64_t)kRows * (step * shards + shard));
    check(gw_train_step(model, opt, &batch, NULL, NULL, &result));
    if (shard == 0 && step % 20 == 0) printf("step %d  loss %.6f\n", step, result.loss);
  }

  gw_optimizer_release(opt);
  gw_module_release(model);
  check(gw_gangs_shutdown(gangs, -1));
  gw_gangs_release(gangs);
  return result.loss < 0.01 ? 0 : 1;
}

/* Own compute as a module: a regression, written in C, sharded and trained like a built-in layer.
 *   gangrun -n 2 03_custom_module */
#include "example.h"
enum { kFeatures = 8, kRows = 64, kCount = kRows * kFeatures };
/* Half the sum of squared errors of y = w x; the true w[i] is i / 8. Adds its gradient times `seed` to dw. */
static double own_compute(const float *w, const float *x, float *dw, double seed) {
  double loss = 0, sums[kFeatures] = {0};
  for (int r = 0; r < kRows; ++r, x += kFeatures) {
    double error = 0; for (int i = 0; i < kFeatures; ++i) error += (w[i] - i / 8.0) * x[i];
    for (int i = 0; i < kFeatures; ++i) sums[i] += error * x[i];
    loss += 0.5 * error * error;
  }
  for (int i = 0; i < kFeatures && dw != NULL; ++i) dw[i] += (float)(seed * sums[i]);
  return loss;
}
/* x [kRows, kFeatures], data without gradient -> loss sum, weight; f32 alone, as accepts_dtype could say. */
static gw_status forward(void *user, gw_call *call) {
  *(double *)call->outputs[0].data = own_compute(call->parameters[0].data, call->inputs[0].data, NULL, 0);
  *(double *)call->outputs[1].data = kRows;
  return GW_OK;
}
static gw_status backward(void *user, gw_call *call) {
  own_compute(call->parameters->data, call->inputs[0].data, call->parameter_grads[0].data, call->loss_scale);
  float *dx = call->input_grads[0].data; for (int i = 0; i < kCount && dx != NULL; ++i) dx[i] = 0;
  return GW_OK;
}
int main(void) {
  WITH_DEFAULTS(gw_parameter_options, weight); weight.name = "w"; weight.ndim = 1; weight.dims[0] = kFeatures;
  WITH_DEFAULTS(gw_custom_options, c); c.forward = forward; c.backward_input = backward;
  c.output_count = 2; c.parameters = &weight; c.parameter_count = 1; WITH_DEFAULTS(gw_step_result, result);
  WITH_DEFAULTS(gw_adamw_options, adamw); adamw.lr = 0.02; gw_gangs *gangs; gw_module *model;
  check(gw_gangs_create(NULL, NULL, &gangs)); check(gw_custom_create(&c, &model));
  gw_optimizer *opt; check(gw_parallelize(model, gangs, NULL)); check(gw_adamw_create(model, &adamw, &opt));
  int32_t shard, shards; check(gw_gangs_data_shard(gangs, &shard, &shards));
  gw_view in; float x[kCount]; check(gw_view_set(&in, x, (int64_t[]){kRows, kFeatures}, 2, GW_F32));
  WITH_DEFAULTS(gw_batch, batch); batch.inputs = &in; batch.input_count = 1; batch.weight = kRows;
  for (int step = 1; step <= 100; ++step) {
    const int64_t n = (int64_t)kRows * (step * shards + shard);
    for (int i = 0; i < kCount; ++i) /* rows from the n-th on: made up, the same in every language */
      x[i] = (float)((n + i / kFeatures) * (i % kFeatures + 1) * 97 % 1021 - 510) / 1024;
    check(gw_train_step(model, opt, &batch, NULL, NULL, &result));
    if (shard == 0 && step % 20 == 0) printf("step %d  loss %.6f\n", step, result.loss);
  }
  gw_optimizer_release(opt); gw_module_release(model); check(gw_gangs_shutdown(gangs, -1));
  gw_gangs_release(gangs); return result.loss < 0.01 ? 0 : 1;
}

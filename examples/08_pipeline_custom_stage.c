/* A pipeline of stages that the program computes by itself: the library runs the schedule and moves what goes
 * between the stages. Each rank has one stage, y = x w; together they learn to halve their input.
 *   gangrun -n 4 08_pipeline_custom_stage */
#include "example.h"

enum { kWidth = 8, kRows = 16, kMicrobatches = 8, kCount = kRows * kWidth };

static float w[kWidth][kWidth], dw[kWidth][kWidth]; /* of this rank's stage: [in][out] */
static float data[kMicrobatches][kCount]; /* the first stage's input; the last one's targets are half of it */
static const float *x[kMicrobatches], *dy[kMicrobatches]; /* they stay until the weight gradient is done */
static float error[kMicrobatches][kCount];

static void forward(const float *in, float *out) {
  for (int r = 0; r < kRows; ++r)
    for (int o = 0; o < kWidth; ++o) {
      out[r * kWidth + o] = 0;
      for (int i = 0; i < kWidth; ++i) out[r * kWidth + o] += in[r * kWidth + i] * w[i][o];
    }
}

static void input_gradient(const float *gradient, float *out) {
  for (int r = 0; r < kRows; ++r)
    for (int i = 0; i < kWidth; ++i) {
      out[r * kWidth + i] = 0;
      for (int o = 0; o < kWidth; ++o) out[r * kWidth + i] += gradient[r * kWidth + o] * w[i][o];
    }
}

static void weight_gradient(const float *in, const float *gradient) {
  for (int r = 0; r < kRows; ++r)
    for (int i = 0; i < kWidth; ++i)
      for (int o = 0; o < kWidth; ++o) dw[i][o] += in[r * kWidth + i] * gradient[r * kWidth + o];
}

/* Computes one action; the loss of the last stage is added to *loss. */
static void compute(gw_pipeline *pipe, const gw_pipeline_action *action, double *loss) {
  const int m = action->microbatch;
  static float out[kCount];
  size_t outputs = 0;
  switch (action->kind) {
    case GW_ACTION_FORWARD:
      x[m] = action->first_stage ? data[m] : action->inputs[0].data;
      forward(x[m], out);
      outputs = action->last_stage ? 0 : 1;
      for (int i = 0; i < kCount && action->last_stage; ++i) {
        error[m][i] = out[i] - data[m][i] / 2;
        *loss += 0.5 * error[m][i] * error[m][i];
      }
      break;
    case GW_ACTION_BACKWARD:
    case GW_ACTION_INPUT_GRADIENT:
      dy[m] = action->last_stage ? error[m] : action->inputs[0].data;
      input_gradient(dy[m], out);
      outputs = action->first_stage ? 0 : 1;
      if (action->kind == GW_ACTION_BACKWARD) weight_gradient(x[m], dy[m]);
      break;
    case GW_ACTION_WEIGHT_GRADIENT: weight_gradient(x[m], dy[m]); break;
  }
  gw_view view;
  check(gw_view_set(&view, out, (int64_t[]){kRows, kWidth}, 2, GW_F32));
  check(gw_pipeline_done(pipe, &view, outputs, NULL)); /* copies, and starts to send */
}

int main(void) {
  gw_gang *gang = NULL;
  gw_pipeline *pipe = NULL;
  check(gw_gang_create(NULL, &gang));
  WITH_DEFAULTS(gw_pipeline_options, options);
  options.schedule = "zb-h1";
  options.microbatches = kMicrobatches;
  check(gw_pipeline_create(gang, &options, &pipe));

  for (int i = 0; i < kWidth; ++i) w[i][i] = 1;
  for (int i = 0; i < kMicrobatches * kCount; ++i)
    data[i / kCount][i % kCount] = (float)(i * 97 % 1021 - 510) / 512;
  double loss = 0;
  for (int step = 1; step <= 80; ++step) {
    double own = 0;
    WITH_DEFAULTS(gw_pipeline_action, action);
    for (check(gw_pipeline_next(pipe, NULL, &action)); action.kind != GW_ACTION_END;
         check(gw_pipeline_next(pipe, NULL, &action)))
      compute(pipe, &action, &own);
    for (int i = 0; i < kWidth * kWidth; ++i) {
      w[i / kWidth][i % kWidth] -= 0.3f * dw[i / kWidth][i % kWidth] / (kMicrobatches * kRows);
      dw[i / kWidth][i % kWidth] = 0;
    }
    check(gw_gang_all_sum(gang, own / (kMicrobatches * kRows), &loss));
    if (gw_gang_rank(gang) == 0 && step % 20 == 0) printf("step %d  loss %.6f\n", step, loss);
  }
  gw_pipeline_release(pipe);
  check(gw_gang_shutdown(gang, -1));
  gw_gang_release(gang);
  return loss < 0.001 ? 0 : 1;
}

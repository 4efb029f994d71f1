/* Small models for the C tests. */
#ifndef GANGWAY_TESTS_CAPI_MODELS_H
#define GANGWAY_TESTS_CAPI_MODELS_H

#include "device_memory.h"

/* small_llama with memory, in f64, on a gang of one rank. */
static MAYBE_UNUSED gw_module* materialized_llama(void) {
  gw_module* model = NULL;
  const gw_decoder_options o = small_llama();
  assert_ok(gw_decoder_create(&o, &model));
  assert_ok(gw_module_materialize(model, NULL, 1, GW_F64));
  return model;
}

/* A custom module y = w x (elementwise, w [1]). Its loss is {sum of y, count of x}. */
enum { kMostOfALine = 8 };
typedef struct line {
  int shapes, forwards, inputs, weights, frees, states, fail_forward, fail_backward;
  double seed_seen;
  uint64_t seed;
} line;
static MAYBE_UNUSED gw_status line_shapes(void* user, gw_call* call) {
  ++((line*)user)->shapes;
  for (int32_t i = 0; i < 2; ++i) {
    call->outputs[i].ndim = 1;
    call->outputs[i].dtype = GW_F64;
    ((int64_t*)call->outputs[i].shape)[0] = 1;
  }
  return call->phase == GW_PHASE_SHAPES ? GW_OK : GW_E_INTERNAL;
}
static MAYBE_UNUSED gw_status line_forward(void* user, gw_call* call) {
  line* l = user;
  ++l->forwards;
  l->seed = call->seed;
  if (l->fail_forward) return (gw_status)l->fail_forward;
  const int64_t count = call->inputs[0].shape[0];
  const double weight = (double)count;
  float w, x[kMostOfALine];
  if (count > kMostOfALine) return GW_E_INTERNAL;
  take(&w, &call->parameters[0], call);
  take(x, &call->inputs[0], call);
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += (double)(w * x[i]);
  give(&call->outputs[0], &sum, call);
  give(&call->outputs[1], &weight, call);
  *call->state = malloc(1);
  return GW_OK;
}
static MAYBE_UNUSED gw_status line_backward_input(void* user, gw_call* call) {
  line* l = user;
  ++l->inputs;
  if (l->fail_backward) return (gw_status)l->fail_backward;
  l->seed_seen = call->loss_scale;
  if (call->input_grads[0].data != NULL) {
    float w, grads[kMostOfALine];
    take(&w, &call->parameters[0], call);
    for (int64_t i = 0; i < call->inputs[0].shape[0]; ++i) grads[i] = w * (float)call->loss_scale;
    give(&call->input_grads[0], grads, call);
  }
  return *call->state != NULL ? GW_OK : GW_E_INTERNAL;
}
static MAYBE_UNUSED gw_status line_backward_weight(void* user, gw_call* call) {
  ++((line*)user)->weights;
  float gradient, x[kMostOfALine];
  take(&gradient, &call->parameter_grads[0], call);
  take(x, &call->inputs[0], call);
  for (int64_t i = 0; i < call->inputs[0].shape[0]; ++i) gradient += x[i] * (float)call->loss_scale;
  give(&call->parameter_grads[0], &gradient, call);
  return GW_OK;
}
static MAYBE_UNUSED void line_free(void* user) { ++((line*)user)->frees; }
static MAYBE_UNUSED gw_status line_fill(void* user, int64_t first, int64_t last, void* out, size_t count,
                                        gw_dtype dtype) {
  (void)user;
  if (count != (size_t)(last - first) || dtype != GW_F32) return GW_E_INTERNAL;
  for (int64_t i = first; i < last; ++i) ((float*)out)[i - first] = 2.0f;
  return GW_OK;
}

static MAYBE_UNUSED void line_parameter(gw_parameter_options* p, gw_init_options* init, int* freed) {
  gw_init_options_init(init, sizeof *init);
  init->kind = GW_INIT_FILL;
  init->fill = line_fill;
  init->user = freed;
  init->free_user = count_free;
  gw_parameter_options_init(p, sizeof *p);
  p->name = "w";
  p->ndim = 1;
  p->dims[0] = 1;
  p->initializer = init;
}
static MAYBE_UNUSED void line_options(gw_custom_options* c, line* l, const gw_parameter_options* p) {
  gw_custom_options_init(c, sizeof *c);
  c->name = "line";
  c->shapes = line_shapes;
  c->forward = line_forward;
  c->backward_input = line_backward_input;
  c->backward_weight = line_backward_weight;
  c->user = l;
  c->free_user = line_free;
  c->free_state = free;
  c->output_count = 2;
  c->parameters = p;
  c->parameter_count = 1;
}
/* Makes the module. `freed` counts the calls that free the user of its initializer. */
static MAYBE_UNUSED gw_status create_line(line* l, int* freed, gw_module** out) {
  gw_init_options init;
  gw_parameter_options p;
  gw_custom_options c;
  line_parameter(&p, &init, freed);
  line_options(&c, l, &p);
  return gw_custom_create(&c, out);
}

#endif

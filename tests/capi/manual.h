/* A small sharded Llama for tests of the manual forward and backward. */
#ifndef GANGWAY_TESTS_CAPI_MANUAL_H
#define GANGWAY_TESTS_CAPI_MANUAL_H

#include "models.h"

typedef struct loop {
  gw_gangs* gangs;
  gw_module* model;
  gw_frame* frame;
  gw_optimizer* opt;
  small_batch b;
  gw_view inputs[2];
} loop;

static MAYBE_UNUSED gw_status set_up(rank* me, gw_strategy strategy, loop* l) {
  gw_parallel_options p;
  gw_shard_options s;
  gw_parallel_options_init(&p, sizeof p);
  gw_shard_options_init(&s, sizeof s);
  p.shard = &s;
  s.strategy = strategy;
  p.master_dtype = GW_F64;
  p.seed = 3;
  const gw_decoder_options o = small_llama();
  memset(l, 0, sizeof *l);
  gw_status status = gw_gangs_create(me->gang, NULL, &l->gangs);
  if (status == GW_OK) status = gw_decoder_create(&o, &l->model);
  if (status == GW_OK) status = gw_parallelize(l->model, l->gangs, &p);
  if (status == GW_OK) status = gw_frame_create(l->model, NULL, &l->frame);
  if (status == GW_OK) status = gw_sgd_create(l->model, NULL, &l->opt);
  fill_batch(&l->b, 2, me->index);
  l->inputs[0] = l->inputs[1] = l->b.input;
  return status;
}

static MAYBE_UNUSED void tear_down(loop* l) {
  gw_optimizer_release(l->opt);
  gw_frame_release(l->frame);
  gw_module_release(l->model);
  gw_gangs_release(l->gangs);
}

static MAYBE_UNUSED gw_status forward(loop* l, size_t capacity) {
  gw_tensor* out[2] = {NULL, NULL};
  size_t count = 0;
  const gw_status status = gw_module_forward(l->model, l->inputs, 2, l->frame, NULL, out, capacity, &count);
  for (int i = 0; i < 2; ++i) gw_tensor_release(out[i]);
  return status;
}
static MAYBE_UNUSED gw_status backward(loop* l) {
  gw_tensor* out[2] = {NULL, NULL};
  size_t count = 0;
  const gw_status status = gw_module_backward(l->model, NULL, 0, l->frame, NULL, out, 2, &count);
  for (int i = 0; i < 2; ++i) gw_tensor_release(out[i]);
  return status;
}
/* Runs one forward and backward. Returns the gradient norm, or -1 if a call was refused. The gradients are
 * empty afterwards. */
static MAYBE_UNUSED double norm_of_one(loop* l) {
  double norm = -1;
  const int ran = forward(l, 2) == GW_OK && backward(l) == GW_OK &&
                  gw_clip_grad_norm(l->model, 1e9, 2, NULL, &norm) == GW_OK &&
                  gw_zero_grad(l->model, NULL) == GW_OK;
  return ran ? norm : -1;
}

#endif

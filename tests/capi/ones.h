/* A model of one parameter of ones, whose gradients the tests set. */
#pragma once

#include "models.h"

#include <math.h>

/* A shard group, as a model, with one parameter w [4] of ones. The tests set its gradients. */
static inline gw_module* ones(gw_shard_group** out_group, gw_gangs* gangs) {
  gw_init_options init;
  gw_init_options_init(&init, sizeof init);
  init.kind = GW_INIT_ONES;
  gw_parameter_options p;
  gw_parameter_options_init(&p, sizeof p);
  p.name = "w";
  p.ndim = 1;
  p.dims[0] = 4;
  p.dtype = GW_F64;
  p.initializer = &init;
  gw_module* model = NULL;
  if (gw_shard_group_create(gangs, "g", &p, 1, NULL, 0, out_group) != GW_OK) return NULL;
  return gw_module_from_groups(out_group, 1, &model) == GW_OK ? model : NULL;
}

static inline gw_status add(gw_shard_group* group, double a, double b, double c, double d) {
  double g[4] = {a, b, c, d};
  const int64_t shape[1] = {4};
  gw_view view;
  gw_view_set(&view, g, shape, 1, GW_F64);
  gw_status status = gw_shard_group_unshard(group, NULL, NULL);
  if (status == GW_OK) status = gw_shard_group_add_gradient(group, 0, &view, NULL);
  if (status == GW_OK) status = gw_shard_group_reshard(group, NULL);
  if (status == GW_OK) status = gw_shard_group_reduce(group, NULL);
  return status;
}

static inline double value(gw_module* model, int index) {
  gw_parameter* w = NULL;
  gw_tensor* whole = NULL;
  gw_view view;
  double result = NAN;
  if (gw_module_find_parameter(model, "g.w", &w) == GW_OK && gw_parameter_gather(w, NULL, &whole) == GW_OK &&
      gw_tensor_view(whole, &view) == GW_OK)
    result = at(&view, index);
  gw_tensor_release(whole);
  gw_parameter_release(w);
  return result;
}

static inline int near(double a, double b) { return fabs(a - b) < 1e-12; }

// Made by capi/optimizers.py from the table of optimizers (impl/optim): do not edit.
#include <gangway/optimizers.h>

#include "optimizer_options.h"

using namespace gangway;
using namespace gangway::capi;

void gw_adamw_options_init(gw_adamw_options* options, size_t size) {
  auto d = common_defaults<gw_adamw_options>(1e-3, 0.0);
  d.beta1 = 0.9;
  d.beta2 = 0.999;
  d.eps = 1e-8;
  d.moment_dtype = GW_F32;
  init_struct(options, size, d);
}

gw_status gw_adamw_create(gw_module* model, const gw_adamw_options* options, gw_optimizer** out_optimizer) {
  return create_optimizer("adamw", model, options, gw_adamw_options_init, out_optimizer,
                          [](const gw_adamw_options& o) -> HyperValues {
                            return {{"beta1", o.beta1}, {"beta2", o.beta2}, {"eps", o.eps}, {"moment_dtype", dtype_or(o.moment_dtype, DType::f32)}};
                          });
}

void gw_lion_options_init(gw_lion_options* options, size_t size) {
  auto d = common_defaults<gw_lion_options>(1e-4, 0.0);
  d.beta1 = 0.9;
  d.beta2 = 0.99;
  d.moment_dtype = GW_F32;
  init_struct(options, size, d);
}

gw_status gw_lion_create(gw_module* model, const gw_lion_options* options, gw_optimizer** out_optimizer) {
  return create_optimizer("lion", model, options, gw_lion_options_init, out_optimizer,
                          [](const gw_lion_options& o) -> HyperValues {
                            return {{"beta1", o.beta1}, {"beta2", o.beta2}, {"moment_dtype", dtype_or(o.moment_dtype, DType::f32)}};
                          });
}

void gw_sgd_options_init(gw_sgd_options* options, size_t size) {
  auto d = common_defaults<gw_sgd_options>(1e-3, 0.0);
  d.momentum = 0;
  d.nesterov = 0;
  init_struct(options, size, d);
}

gw_status gw_sgd_create(gw_module* model, const gw_sgd_options* options, gw_optimizer** out_optimizer) {
  return create_optimizer("sgd", model, options, gw_sgd_options_init, out_optimizer,
                          [](const gw_sgd_options& o) -> HyperValues {
                            return {{"momentum", o.momentum}, {"nesterov", o.nesterov != 0}};
                          });
}

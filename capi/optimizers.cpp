// Made by capi/optimizers.py from the table of optimizers (impl/optim): do not edit.
#include <gangway/optimizers.h>

#include "optimizer_options.h"

using namespace gangway;
using namespace gangway::capi;

void gw_adafactor_options_init(gw_adafactor_options* options, size_t size) {
  auto d = common_defaults<gw_adafactor_options>(1e-2, 0.0);
  d.beta2_decay = -0.8;
  d.eps = 1e-3;
  d.clip_threshold = 1;
  init_struct(options, size, d);
}

gw_status gw_adafactor_create(gw_module* model, const gw_adafactor_options* options, gw_optimizer** out_optimizer) {
  return create_optimizer("adafactor", model, options, gw_adafactor_options_init, out_optimizer,
                          [](const gw_adafactor_options& o) -> HyperValues {
                            return {{"beta2_decay", o.beta2_decay}, {"eps", o.eps}, {"clip_threshold", o.clip_threshold}};
                          });
}

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

void gw_adamw8bit_options_init(gw_adamw8bit_options* options, size_t size) {
  auto d = common_defaults<gw_adamw8bit_options>(1e-3, 0.0);
  d.beta1 = 0.9;
  d.beta2 = 0.999;
  d.eps = 1e-8;
  init_struct(options, size, d);
}

gw_status gw_adamw8bit_create(gw_module* model, const gw_adamw8bit_options* options, gw_optimizer** out_optimizer) {
  return create_optimizer("adamw8bit", model, options, gw_adamw8bit_options_init, out_optimizer,
                          [](const gw_adamw8bit_options& o) -> HyperValues {
                            return {{"beta1", o.beta1}, {"beta2", o.beta2}, {"eps", o.eps}};
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

void gw_muon_options_init(gw_muon_options* options, size_t size) {
  auto d = common_defaults<gw_muon_options>(1e-3, 0.1);
  d.momentum = 0.95;
  d.ns_steps = 5;
  d.eps = 1e-7;
  d.adamw_lr_scale = 1;
  d.beta1 = 0.9;
  d.beta2 = 0.999;
  d.adamw_eps = 1e-8;
  d.nesterov = 1;
  d.match_rms = 0;
  d.matrix_dtype = GW_F32;
  d.moment_dtype = GW_F32;
  init_struct(options, size, d);
}

gw_status gw_muon_create(gw_module* model, const gw_muon_options* options, gw_optimizer** out_optimizer) {
  return create_optimizer("muon", model, options, gw_muon_options_init, out_optimizer,
                          [](const gw_muon_options& o) -> HyperValues {
                            return {{"momentum", o.momentum}, {"ns_steps", o.ns_steps}, {"eps", o.eps}, {"adamw_lr_scale", o.adamw_lr_scale}, {"beta1", o.beta1}, {"beta2", o.beta2}, {"adamw_eps", o.adamw_eps}, {"nesterov", o.nesterov != 0}, {"match_rms", o.match_rms != 0}, {"matrix_dtype", dtype_or(o.matrix_dtype, DType::f32)}, {"moment_dtype", dtype_or(o.moment_dtype, DType::f32)}};
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

/* Made by capi/optimizers.py from the table of optimizers (impl/optim): do not edit.
 * The rows by which C tests ask the same of each optimizer. */
#define OPTIMIZERS(X) \
  X(adafactor) \
  X(adamw) \
  X(adamw8bit) \
  X(lion) \
  X(muon) \
  X(sgd)

/* Of struct_calls.h. */
#define OPTIMIZER_INPUTS \
  INPUT(adafactor_options, adafactor_options, NULL), \
  INPUT(adamw_options, adamw_options, NULL), \
  INPUT(adamw8bit_options, adamw8bit_options, NULL), \
  INPUT(lion_options, lion_options, NULL), \
  INPUT(muon_options, muon_options, NULL), \
  INPUT(sgd_options, sgd_options, NULL)

/* Of finite_test.c. */
#define OPTIMIZER_FLOATS \
  FLOAT(adafactor_options, lr, "lr = ", adafactor) \
  FLOAT(adafactor_options, beta2_decay, "beta2_decay = ", adafactor) \
  FLOAT(adafactor_options, eps, "eps = ", adafactor) \
  FLOAT(adafactor_options, clip_threshold, "clip_threshold = ", adafactor) \
  FLOAT(adafactor_options, weight_decay, "weight_decay = ", adafactor) \
  FLOAT(adafactor_options, ema_decay, "ema_decay = ", adafactor) \
  FLOAT(adafactor_options, last_lr_ratio, "last_lr_ratio = ", adafactor) \
  FLOAT(adafactor_options, loss_scale, "loss_scale = ", adafactor) \
  FLOAT(adafactor_options, initial_loss_scale, "initial_loss_scale = ", adafactor) \
  FLOAT(adamw_options, lr, "lr = ", adamw) \
  FLOAT(adamw_options, beta1, "beta1 = ", adamw) \
  FLOAT(adamw_options, beta2, "beta2 = ", adamw) \
  FLOAT(adamw_options, eps, "eps = ", adamw) \
  FLOAT(adamw_options, weight_decay, "weight_decay = ", adamw) \
  FLOAT(adamw_options, ema_decay, "ema_decay = ", adamw) \
  FLOAT(adamw_options, last_lr_ratio, "last_lr_ratio = ", adamw) \
  FLOAT(adamw_options, loss_scale, "loss_scale = ", adamw) \
  FLOAT(adamw_options, initial_loss_scale, "initial_loss_scale = ", adamw) \
  FLOAT(adamw8bit_options, lr, "lr = ", adamw8bit) \
  FLOAT(adamw8bit_options, beta1, "beta1 = ", adamw8bit) \
  FLOAT(adamw8bit_options, beta2, "beta2 = ", adamw8bit) \
  FLOAT(adamw8bit_options, eps, "eps = ", adamw8bit) \
  FLOAT(adamw8bit_options, weight_decay, "weight_decay = ", adamw8bit) \
  FLOAT(adamw8bit_options, ema_decay, "ema_decay = ", adamw8bit) \
  FLOAT(adamw8bit_options, last_lr_ratio, "last_lr_ratio = ", adamw8bit) \
  FLOAT(adamw8bit_options, loss_scale, "loss_scale = ", adamw8bit) \
  FLOAT(adamw8bit_options, initial_loss_scale, "initial_loss_scale = ", adamw8bit) \
  FLOAT(lion_options, lr, "lr = ", lion) \
  FLOAT(lion_options, beta1, "beta1 = ", lion) \
  FLOAT(lion_options, beta2, "beta2 = ", lion) \
  FLOAT(lion_options, weight_decay, "weight_decay = ", lion) \
  FLOAT(lion_options, ema_decay, "ema_decay = ", lion) \
  FLOAT(lion_options, last_lr_ratio, "last_lr_ratio = ", lion) \
  FLOAT(lion_options, loss_scale, "loss_scale = ", lion) \
  FLOAT(lion_options, initial_loss_scale, "initial_loss_scale = ", lion) \
  FLOAT(muon_options, lr, "lr = ", muon) \
  FLOAT(muon_options, momentum, "momentum = ", muon) \
  FLOAT(muon_options, eps, "eps = ", muon) \
  FLOAT(muon_options, adamw_lr_scale, "adamw_lr_scale = ", muon) \
  FLOAT(muon_options, beta1, "beta1 = ", muon) \
  FLOAT(muon_options, beta2, "beta2 = ", muon) \
  FLOAT(muon_options, adamw_eps, "adamw_eps = ", muon) \
  FLOAT(muon_options, weight_decay, "weight_decay = ", muon) \
  FLOAT(muon_options, ema_decay, "ema_decay = ", muon) \
  FLOAT(muon_options, last_lr_ratio, "last_lr_ratio = ", muon) \
  FLOAT(muon_options, loss_scale, "loss_scale = ", muon) \
  FLOAT(muon_options, initial_loss_scale, "initial_loss_scale = ", muon) \
  FLOAT(sgd_options, lr, "lr = ", sgd) \
  FLOAT(sgd_options, momentum, "momentum = ", sgd) \
  FLOAT(sgd_options, weight_decay, "weight_decay = ", sgd) \
  FLOAT(sgd_options, ema_decay, "ema_decay = ", sgd) \
  FLOAT(sgd_options, last_lr_ratio, "last_lr_ratio = ", sgd) \
  FLOAT(sgd_options, loss_scale, "loss_scale = ", sgd) \
  FLOAT(sgd_options, initial_loss_scale, "initial_loss_scale = ", sgd)

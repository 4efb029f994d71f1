/* Made by capi/optimizers.py from the table of optimizers (impl/optim): do not edit.
 * The rows by which C tests ask the same of each optimizer. */
#define OPTIMIZERS(X) \
  X(adamw) \
  X(lion) \
  X(sgd)

/* Of struct_test.c. */
#define OPTIMIZER_INPUTS \
  INPUT(adamw_options, adamw_options, NULL), \
  INPUT(lion_options, lion_options, NULL), \
  INPUT(sgd_options, sgd_options, NULL)

/* Of finite_test.c. */
#define OPTIMIZER_FLOATS \
  FLOAT(adamw_options, lr, "lr = ", adamw) \
  FLOAT(adamw_options, beta1, "beta1 = ", adamw) \
  FLOAT(adamw_options, beta2, "beta2 = ", adamw) \
  FLOAT(adamw_options, eps, "eps = ", adamw) \
  FLOAT(adamw_options, weight_decay, "weight_decay = ", adamw) \
  FLOAT(adamw_options, last_lr_ratio, "last_lr_ratio = ", adamw) \
  FLOAT(adamw_options, loss_scale, "loss_scale = ", adamw) \
  FLOAT(adamw_options, initial_loss_scale, "initial_loss_scale = ", adamw) \
  FLOAT(lion_options, lr, "lr = ", lion) \
  FLOAT(lion_options, beta1, "beta1 = ", lion) \
  FLOAT(lion_options, beta2, "beta2 = ", lion) \
  FLOAT(lion_options, weight_decay, "weight_decay = ", lion) \
  FLOAT(lion_options, last_lr_ratio, "last_lr_ratio = ", lion) \
  FLOAT(lion_options, loss_scale, "loss_scale = ", lion) \
  FLOAT(lion_options, initial_loss_scale, "initial_loss_scale = ", lion) \
  FLOAT(sgd_options, lr, "lr = ", sgd) \
  FLOAT(sgd_options, momentum, "momentum = ", sgd) \
  FLOAT(sgd_options, weight_decay, "weight_decay = ", sgd) \
  FLOAT(sgd_options, last_lr_ratio, "last_lr_ratio = ", sgd) \
  FLOAT(sgd_options, loss_scale, "loss_scale = ", sgd) \
  FLOAT(sgd_options, initial_loss_scale, "initial_loss_scale = ", sgd)

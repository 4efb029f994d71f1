/* A program with its own compute and its own loop; gangway only shards: y = w x + b fitted by hand-written gradients,
 * two microbatches a step.
 *   gangrun -n 2 04_shard_group */
#include <gangway/gangway.h>
#include <stdio.h>
#include <stdlib.h>

enum { kFeatures = 10, kRows = 32, kMicrobatches = 2 };

static int report(void) {
  gw_error_info e;
  gw_error_info_init(&e, sizeof e);
  gw_last_error(&e);
  fprintf(stderr, "%s: %s\n", gw_status_name(e.code), e.message);
  return 1;
}

/* The caller's own model: adds gradients of the squared error's sum, returns that sum. */
static double own_compute(const float *w, const float *b, float *dw, float *db) {
  double loss = 0;
  for (int i = 0; i < kFeatures; ++i) dw[i] = 0;
  *db = 0;
  for (int r = 0; r < kRows; ++r) {
    float x[kFeatures], y = *b, truth = 0.5f;
    for (int i = 0; i < kFeatures; ++i) {
      x[i] = (float)rand() / (float)RAND_MAX - 0.5f;
      y += w[i] * x[i];
      truth += (float)i * 0.1f * x[i];
    }
    const float e = y - truth;
    loss += 0.5 * e * e;
    for (int i = 0; i < kFeatures; ++i) dw[i] += e * x[i];
    *db += e;
  }
  return loss;
}

int main(void) {
  gw_parameter_options parameters[2];
  for (int i = 0; i < 2; ++i) gw_parameter_options_init(&parameters[i], sizeof parameters[i]);
  parameters[0].name = "w";
  parameters[0].ndim = 1;
  parameters[0].dims[0] = kFeatures;
  parameters[1].name = "b";
  parameters[1].ndim = 1;
  parameters[1].dims[0] = 1;

  gw_gangs *gangs = NULL;
  gw_shard_group *group = NULL;
  gw_module *model = NULL;
  gw_optimizer *opt = NULL;
  gw_gang *root = NULL;
  if (gw_gangs_create(NULL, NULL, &gangs) != GW_OK) return report();
  if (gw_shard_group_create(gangs, "line", parameters, 2, NULL, 1, &group) != GW_OK) return report();
  if (gw_module_from_groups(&group, 1, &model) != GW_OK) return report();
  gw_adamw_options adamw;
  gw_adamw_options_init(&adamw, sizeof adamw);
  adamw.lr = 0.05;
  if (gw_adamw_create(model, &adamw, &opt) != GW_OK) return report();
  if (gw_gangs_get(gangs, "root", &root) != GW_OK) return report();

  const double items = (double)kRows * kMicrobatches * gw_gang_size(root); /* of a step, over all ranks */
  gw_step_options step;
  gw_step_options_init(&step, sizeof step);
  step.scale = 1.0 / items; /* the gradients below are of sums */
  step.max_grad_norm = 1.0;
  double mean = 0;
  srand(11 + (unsigned)gw_gang_rank(root));
  for (int s = 1; s <= 200; ++s) {
    double loss = 0;
    for (int m = 0; m < kMicrobatches; ++m) {
      gw_view w, b, dw, db;
      float w_gradient[kFeatures], b_gradient;
      if (gw_shard_group_unshard(group, NULL, NULL) != GW_OK) return report();
      if (gw_shard_group_view(group, 0, GW_PART_FULL_VALUE, &w) != GW_OK) return report();
      if (gw_shard_group_view(group, 1, GW_PART_FULL_VALUE, &b) != GW_OK) return report();
      loss += own_compute(w.data, b.data, w_gradient, &b_gradient);
      const int64_t w_shape[1] = {kFeatures}, b_shape[1] = {1};
      gw_view_set(&dw, w_gradient, w_shape, 1, GW_F32);
      gw_view_set(&db, &b_gradient, b_shape, 1, GW_F32);
      if (gw_shard_group_add_gradient(group, 0, &dw, NULL) != GW_OK) return report();
      if (gw_shard_group_add_gradient(group, 1, &db, NULL) != GW_OK) return report();
      if (gw_shard_group_reshard(group, NULL) != GW_OK) return report();
    }
    if (gw_shard_group_reduce(group, NULL) != GW_OK) return report();
    if (gw_optimizer_step(opt, &step, NULL, NULL) != GW_OK) return report();
    if (gw_gang_all_sum(root, loss, &loss) != GW_OK) return report();
    mean = loss / items;
    if (gw_gang_rank(root) == 0 && s % 50 == 0) printf("step %d  loss %.6f\n", s, mean);
  }
  gw_gang_release(root);
  gw_optimizer_release(opt);
  gw_module_release(model);
  gw_shard_group_release(group);
  if (gw_gangs_shutdown(gangs, -1) != GW_OK) return report();
  gw_gangs_release(gangs);
  return mean < 0.001 ? 0 : 1;
}

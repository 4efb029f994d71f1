/* A program with its own compute and its own loop; gangway only shards: y = w x, two microbatches a step.
 *   gangrun -n 2 04_shard_group */
#include "example.h"

enum { kFeatures = 10, kRows = 32, kMicrobatches = 2 };

/* Half the squared errors of y = w x, true w[i] = i / 8, over made-up rows from n on. Adds its gradient. */
static double own_compute(const float *w, float *dw, int64_t n) {
  double loss = 0, sums[kFeatures] = {0};
  for (int r = 0; r < kRows; ++r, ++n) {
    double x[kFeatures], error = 0;
    for (int i = 0; i < kFeatures; ++i) x[i] = (double)(n * (i + 1) * 97 % 1021 - 510) / 1024;
    for (int i = 0; i < kFeatures; ++i) error += (w[i] - i / 8.0) * x[i];
    for (int i = 0; i < kFeatures; ++i) sums[i] += error * x[i];
    loss += 0.5 * error * error;
  }
  for (int i = 0; i < kFeatures; ++i) dw[i] += (float)sums[i];
  return loss;
}

int main(void) {
  gw_gangs *gangs;
  gw_gang *root;
  check(gw_gangs_create(NULL, NULL, &gangs));
  check(gw_gangs_get(gangs, "root", &root));
  const int32_t rank = gw_gang_rank(root), size = gw_gang_size(root);

  WITH_DEFAULTS(gw_parameter_options, weight);
  weight.name = "w";
  weight.ndim = 1;
  weight.dims[0] = kFeatures;
  gw_shard_group *group;
  gw_module *model;
  check(gw_shard_group_create(gangs, "line", &weight, 1, NULL, 1, &group));
  check(gw_module_from_groups(&group, 1, &model));

  gw_optimizer *opt;
  WITH_DEFAULTS(gw_adamw_options, adamw);
  adamw.lr = 0.02;
  check(gw_adamw_create(model, &adamw, &opt));

  const double items = (double)kRows * kMicrobatches * size; /* of a step, over all ranks */
  WITH_DEFAULTS(gw_step_options, options);
  options.scale = 1 / items;
  options.max_grad_norm = 1;
  double mean = 1;
  for (int step = 1; step <= 200; ++step) {
    double loss = 0;
    for (int m = 0; m < kMicrobatches; ++m) {
      const int64_t first = (int64_t)kRows * ((step * kMicrobatches + m) * size + rank);
      gw_view w, dw;
      check(gw_shard_group_unshard(group, NULL, NULL));
      check(gw_shard_group_view(group, 0, GW_PART_FULL_VALUE, &w));
      check(gw_shard_group_view(group, 0, GW_PART_FULL_GRADIENT, &dw));
      loss += own_compute(w.data, dw.data, first);
      check(gw_shard_group_reshard(group, NULL));
    }
    check(gw_shard_group_reduce(group, NULL));
    check(gw_optimizer_step(opt, &options, NULL, NULL));
    check(gw_gang_all_sum(root, loss, &mean));
    mean /= items;
    if (rank == 0 && step % 50 == 0) printf("step %d  loss %.6f\n", step, mean);
  }

  gw_optimizer_release(opt);
  gw_module_release(model);
  gw_shard_group_release(group);
  gw_gang_release(root);
  check(gw_gangs_shutdown(gangs, -1));
  gw_gangs_release(gangs);
  return mean < 0.001 ? 0 : 1;
}

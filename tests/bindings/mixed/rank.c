/* One rank of a gang that may hold ranks in other languages: rank.py, rank.rs and rank.jl do the same calls. Writes the bits
 * of every result, a line each: name, then bytes in hex.
 *   gangrun -n 4 rank FOLDER */
#include "collectives.h"

enum { kFeatures = 37, kSequence = 16, kRows = 2, kVocab = 64, kSteps = 3 };

static void sum_of_ranks(gw_gang *gang, const char *name) {
  float x[kCount];
  fill(x, GW_F32, kCount, 50);
  if (gang != NULL) need(gw_gang_all_reduce(gang, x, x, kCount, GW_F32, GW_SUM, NULL), name);
  put(name, x, sizeof x);
  gw_gang_release(gang);
}

static void other_gangs(gw_gang *gang) {
  static const int32_t ranks[3] = {3, 0, 2};
  gw_gang *split = NULL, *listed = NULL, *twin = NULL;
  need(gw_gang_split(gang, me % 2, -me, &split), "split");
  need(gw_gang_create_gang(gang, ranks, 3, &listed), "create_gang");
  need(gw_gang_duplicate(gang, &twin), "duplicate");
  sum_of_ranks(split, "split");
  sum_of_ranks(listed, "create_gang");
  sum_of_ranks(twin, "duplicate");
}

static void put_result(const gw_step_result *result) {
  put("loss", &result->loss, sizeof result->loss);
  put("grad_norm", &result->grad_norm, sizeof result->grad_norm);
}

/* The whole of every parameter. */
static void put_parameters(gw_module *model) {
  size_t count = 0;
  need(gw_module_parameter_count(model, &count), "parameter_count");
  for (size_t i = 0; i < count; ++i) {
    gw_parameter *p = NULL;
    gw_tensor *whole_value = NULL;
    gw_view view;
    need(gw_module_parameter(model, i, &p), "parameter");
    need(gw_parameter_gather(p, NULL, &whole_value), "gather");
    need(gw_tensor_view(whole_value, &view), "view");
    size_t elements = 1;
    for (int d = 0; d < view.ndim; ++d) elements *= (size_t)view.shape[d];
    put("parameter", (char *)view.data + view.byte_offset, elements * sizeof(float));
    gw_tensor_release(whole_value);
    gw_parameter_release(p);
  }
}

static gw_optimizer *adamw(gw_module *model) {
  gw_adamw_options options;
  gw_adamw_options_init(&options, sizeof options);
  options.lr = 0.01;
  gw_optimizer *made = NULL;
  need(gw_adamw_create(model, &options, &made), "adamw");
  return made;
}

static void train(gw_gangs *gangs) {
  gw_decoder_options l;
  gw_decoder_options_init(&l, sizeof l);
  l.dim = 32, l.layers = 2, l.heads = 4, l.vocab = kVocab;
  gw_parallel_options p;
  gw_parallel_options_init(&p, sizeof p);
  p.seed = 9;
  gw_module *model = NULL;
  need(gw_decoder_create(&l, &model), "llama");
  need(gw_parallelize(model, gangs, &p), "parallelize");
  gw_optimizer *opt = adamw(model);
  int64_t tokens[kRows * kSequence];
  const int64_t shape[2] = {kRows, kSequence};
  gw_view view;
  need(gw_view_set(&view, tokens, shape, 2, GW_I64), "view");
  gw_batch batch;
  gw_batch_init(&batch, sizeof batch);
  batch.inputs = &view;
  batch.input_count = 1;
  gw_step_options step;
  gw_step_options_init(&step, sizeof step);
  step.max_grad_norm = 1;
  for (int s = 0; s < kSteps; ++s) {
    for (int i = 0; i < kRows * kSequence; ++i)
      tokens[i] = (i % kSequence * 7 + (me * kRows + i / kSequence) * 5 + s * 3) % kVocab;
    gw_step_result result;
    gw_step_result_init(&result, sizeof result);
    need(gw_train_step(model, opt, &batch, &step, NULL, &result), "train_step");
    put_result(&result);
  }
  put_parameters(model);
  gw_optimizer_release(opt);
  gw_module_release(model);
}

/* Own compute: the gradient of w is w * x - y, element by element. */
static void own_step(gw_shard_group *group, int step) {
  float x[kFeatures], y[kFeatures], gradient[kFeatures];
  const int64_t shape[1] = {kFeatures};
  gw_view full, mine;
  fill(x, GW_F32, kFeatures, 60 + step);
  fill(y, GW_F32, kFeatures, 70 + step);
  need(gw_shard_group_unshard(group, NULL, NULL), "unshard");
  need(gw_shard_group_view(group, 0, GW_PART_FULL_VALUE, &full), "full value");
  const float *w = (const float *)((const char *)full.data + full.byte_offset);
  for (int i = 0; i < kFeatures; ++i) {
    gradient[i] = w[i] * x[i];
    gradient[i] -= y[i];
  }
  need(gw_view_set(&mine, gradient, shape, 1, GW_F32), "view");
  need(gw_shard_group_add_gradient(group, 0, &mine, NULL), "add_gradient");
  need(gw_shard_group_reshard(group, NULL), "reshard");
  need(gw_shard_group_reduce(group, NULL), "reduce");
}

static void own_compute(gw_gangs *gangs) {
  gw_parameter_options parameter;
  gw_parameter_options_init(&parameter, sizeof parameter);
  parameter.name = "w";
  parameter.ndim = 1;
  parameter.dims[0] = kFeatures;
  gw_shard_group *group = NULL;
  gw_module *model = NULL;
  need(gw_shard_group_create(gangs, "own", &parameter, 1, NULL, 5, &group), "shard group");
  need(gw_module_from_groups(&group, 1, &model), "from groups");
  gw_optimizer *opt = adamw(model);
  gw_step_options step;
  gw_step_options_init(&step, sizeof step);
  step.scale = 0.25, step.max_grad_norm = 1;
  for (int s = 0; s < kSteps; ++s) {
    own_step(group, s);
    gw_step_result result;
    gw_step_result_init(&result, sizeof result);
    need(gw_optimizer_step(opt, &step, NULL, &result), "optimizer step");
    put("grad_norm", &result.grad_norm, sizeof result.grad_norm);
  }
  put_parameters(model);
  gw_optimizer_release(opt);
  gw_module_release(model);
  gw_shard_group_release(group);
}

int main(int argc, char **argv) {
  gw_gangs *gangs = NULL;
  gw_gang *gang = NULL;
  need(gw_gangs_create(NULL, NULL, &gangs), "gangs");
  need(gw_gangs_get(gangs, "root", &gang), "root");
  me = gw_gang_rank(gang), size = gw_gang_size(gang);
  char path[4096];
  snprintf(path, sizeof path, "%s/%d", argc > 1 ? argv[1] : ".", me);
  if (size != 4 || (out = fopen(path, "w")) == NULL)
    return fprintf(stderr, "usage: gangrun -n 4 rank FOLDER\n"), 2;
  reductions(gang);
  moves(gang);
  parts_of_counts(gang);
  for (int root = 0; root < size; ++root) rooted(gang, root);
  exchanges(gang);
  small_things(gang);
  bytes(gang);
  other_gangs(gang);
  train(gangs);
  own_compute(gangs);
  fclose(out);
  gw_gang_release(gang);
  need(gw_gangs_shutdown(gangs, -1), "shutdown");
  gw_gangs_release(gangs);
  return 0;
}

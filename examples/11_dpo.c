/* Trains a byte-level Llama by DPO (Rafailov and others, "Direct Preference Optimization", 2023) to prefer
 * the next bytes of a text over random ones. Logits never exist: the loss comes from log-probabilities, and
 * the step from its derivatives by them.
 *   gangrun -n 2 11_dpo TEXT [STEPS] */
#include "example.h"
#include <math.h>
enum { kPairs = 4, kPrompt = 16, kAnswer = 16, kSequence = kPrompt + kAnswer, kRows = 2 * kPairs };
static const double kBeta = 0.1; /* how far the policy may go from the reference */
static unsigned char text[1 << 20];

static uint64_t state;
static uint64_t random_below(uint64_t limit) { /* splitmix64 */
  uint64_t z = state += 0x9E3779B97F4A7C15;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return (z ^ (z >> 31)) % limit;
}

/* The sum of a row's log-probabilities by the policy less that by the reference. */
static double ratio(const double policy[], const double reference[]) {
  double sum = 0;
  for (int i = 0; i < kSequence; ++i) sum += policy[i] - reference[i];
  return sum;
}

static gw_module *model_on(gw_gangs *gangs) {
  WITH_DEFAULTS(gw_decoder_options, llama);
  llama.dim = 64;
  llama.layers = 2;
  llama.heads = 4;
  WITH_DEFAULTS(gw_parallel_options, parallel);
  parallel.seed = 1;
  gw_module *model = NULL;
  check(gw_decoder_create(&llama, &model));
  check(gw_parallelize(model, gangs, &parallel));
  return model;
}

int main(int count, char **arguments) {
  FILE *file = count > 1 ? fopen(arguments[1], "rb") : NULL;
  const size_t size = file != NULL ? fread(text, 1, sizeof text, file) : 0;
  if (size <= kSequence)
    return fprintf(stderr, "usage: 11_dpo TEXT [STEPS]\nTEXT has over %d bytes\n", kSequence), 2;
  fclose(file);
  const int steps = count > 2 ? atoi(arguments[2]) : 50;
  gw_gangs *gangs = NULL;
  gw_optimizer *opt = NULL;
  check(gw_gangs_create(NULL, NULL, &gangs));
  gw_module *const model = model_on(gangs), *const reference = model_on(gangs);
  WITH_DEFAULTS(gw_adamw_options, adamw);
  check(gw_adamw_create(model, &adamw, &opt));
  int32_t part = 0, parts = 1;
  check(gw_gangs_data_shard(gangs, &part, &parts));

  static int64_t tokens[kRows][kSequence], labels[kRows][kSequence];
  static double policy[kRows][kSequence], before[kRows][kSequence], weights[kRows][kSequence];
  const int64_t shape[] = {kRows, kSequence};
  gw_view inputs, targets, token_weights;
  check(gw_view_set(&inputs, tokens, shape, 2, GW_I64));
  check(gw_view_set(&targets, labels, shape, 2, GW_I64));
  check(gw_view_set(&token_weights, weights, shape, 2, GW_F64));
  WITH_DEFAULTS(gw_batch, batch);
  batch.inputs = &inputs;
  batch.targets = &targets;
  batch.input_count = batch.target_count = 1;
  WITH_DEFAULTS(gw_step_options, options);
  options.max_grad_norm = 1;
  size_t made = 0;
  for (int step = 1; step <= steps; ++step) {
    state = (uint64_t)(step * parts + part);
    for (int pair = 0; pair < kPairs; ++pair) { /* row `pair` is chosen, row kPairs + pair rejected */
      const uint64_t start = random_below(size - kSequence);
      for (int i = 0; i < kSequence; ++i) {
        tokens[pair][i] = text[start + (uint64_t)i];
        tokens[kPairs + pair][i] = i < kPrompt ? tokens[pair][i] : (int64_t)random_below(256);
      }
    }
    for (int row = 0; row < kRows; ++row) /* label i is what token i must predict; prompts do not count */
      for (int i = 0; i < kSequence; ++i)
        labels[row][i] = i < kPrompt - 1 || i == kSequence - 1 ? -100 : tokens[row][i + 1];
    batch.token_weights = NULL;
    batch.weight = -1;
    check(gw_log_probs(model, &batch, NULL, NULL, policy[0], kRows * kSequence, &made));
    check(gw_log_probs(reference, &batch, NULL, NULL, before[0], kRows * kSequence, &made));
    double loss = 0;
    for (int pair = 0; pair < kPairs; ++pair) {
      const int other = kPairs + pair;
      const double margin = kBeta * (ratio(policy[pair], before[pair]) - ratio(policy[other], before[other]));
      loss += log1p(exp(-margin)) / kPairs; /* -log(sigmoid(margin)) */
      const double slope = kBeta / (1 + exp(margin));
      for (int i = 0; i < kSequence; ++i) {
        weights[pair][i] = slope; /* the negative derivative of the pair's loss */
        weights[other][i] = -slope;
      }
    }
    batch.token_weights = &token_weights;
    batch.weight = kPairs;
    check(gw_train_step(model, opt, &batch, &options, NULL, NULL));
    if (part == 0 && (step == 1 || step % 10 == 0)) printf("step %d/%d  loss %.4f\n", step, steps, loss);
  }
  gw_optimizer_release(opt);
  gw_module_release(reference);
  gw_module_release(model);
  check(gw_gangs_shutdown(gangs, -1));
  gw_gangs_release(gangs);
  return 0;
}

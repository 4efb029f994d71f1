/* Manual forward and backward: the library runs and shards the model, the program computes the loss.
 *   gangrun -n 2 06_manual */
#include "example.h"
#include <math.h>

enum { kRows = 4, kSequence = 16, kVocab = 32, kCount = kRows * kSequence };

/* The sum of -log p(next token) over all rows; dlogits is its gradient times `seed`. The label of a position
 * is the token after it, so the last position of a row has none. */
static double next_token_loss(const float *logits, const int64_t *tokens, double seed, float *dlogits) {
  double loss = 0;
  for (int i = 0; i < kCount; ++i, logits += kVocab, dlogits += kVocab) {
    const int counts = i % kSequence != kSequence - 1;
    const int64_t label = counts ? tokens[i + 1] : 0;
    double largest = logits[0], sum = 0;
    for (int v = 1; v < kVocab; ++v) largest = fmax(largest, logits[v]);
    for (int v = 0; v < kVocab; ++v) sum += exp(logits[v] - largest);
    for (int v = 0; v < kVocab; ++v)
      dlogits[v] = counts ? (float)(seed * (exp(logits[v] - largest) / sum - (v == label))) : 0;
    if (counts) loss += log(sum) + largest - logits[label];
  }
  return loss;
}

int main(void) {
  gw_gangs *gangs = NULL;
  gw_gang *root = NULL;
  gw_module *layers[2], *model = NULL;
  check(gw_gangs_create(NULL, NULL, &gangs));
  check(gw_gangs_get(gangs, "root", &root));
  check(gw_embedding_create(kVocab, 32, &layers[0]));
  check(gw_linear_create(32, kVocab, 0, &layers[1]));
  check(gw_sequential_create(layers, 2, &model));
  check(gw_parallelize(model, gangs, NULL));

  gw_optimizer *opt = NULL;
  WITH_DEFAULTS(gw_adamw_options, adamw);
  adamw.lr = 0.02;
  check(gw_adamw_create(model, &adamw, &opt));
  gw_frame *frame = NULL; /* the activations that forward keeps for backward */
  check(gw_frame_create(model, NULL, &frame));

  int64_t tokens[kCount];
  static float dlogits[kCount * kVocab];
  gw_view input, gradient, logits, whole;
  check(gw_view_set(&input, tokens, (int64_t[]){kRows, kSequence}, 2, GW_I64));
  check(gw_view_set(&gradient, dlogits, (int64_t[]){kRows, kSequence, kVocab}, 3, GW_F32));
  const int rank = gw_gang_rank(root);
  /* Gradients are sums over rows and ranks, so a mean over N labels starts with 1/N. */
  const double labels = (double)kRows * (kSequence - 1) * gw_gang_size(root);
  double mean = 0;
  for (int step = 1; step <= 100; ++step) {
    for (int i = 0; i < kCount; ++i) /* made up: each token follows from the one before it */
      tokens[i] = i % kSequence == 0 ? (step + rank * 5 + i) % kVocab : (5 * tokens[i - 1] + 3) % kVocab;

    gw_tensor *output = NULL, *input_gradient = NULL; /* ids have no gradient: the second stays null */
    size_t count = 0;
    check(gw_module_forward(model, &input, 1, frame, NULL, &output, 1, &count));
    check(gw_tensor_view(output, &logits));
    const double loss = next_token_loss(logits.data, tokens, 1 / labels, dlogits);
    gw_tensor_release(output);
    check(gw_module_backward(model, &gradient, 1, frame, NULL, &input_gradient, 1, &count));
    gw_tensor_release(input_gradient);

    if (step == 1) { /* a whole gradient, summed over the ranks, on every rank */
      gw_parameter *weight = NULL;
      gw_tensor *gathered = NULL;
      check(gw_module_find_parameter(model, "1.weight", &weight));
      check(gw_parameter_gather_gradient(weight, NULL, &gathered));
      check(gw_tensor_view(gathered, &whole));
      if (rank == 0)
        printf("gradient of 1.weight: %d x %d\n", (int)whole.shape[0], (int)whole.shape[1]);
      gw_tensor_release(gathered);
      gw_parameter_release(weight);
    }
    check(gw_optimizer_step(opt, NULL, NULL, NULL)); /* steps, and empties the gradients */
    check(gw_gang_all_sum(root, loss, &mean));
    mean /= labels;
    if (rank == 0 && (step == 1 || step % 20 == 0)) printf("step %d  loss %.6f\n", step, mean);
  }
  gw_frame_release(frame);
  gw_optimizer_release(opt);
  gw_module_release(model);
  gw_module_release(layers[0]);
  gw_module_release(layers[1]);
  gw_gang_release(root);
  check(gw_gangs_shutdown(gangs, -1));
  gw_gangs_release(gangs);
  return mean < 0.1 ? 0 : 1;
}

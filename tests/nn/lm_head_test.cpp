// The head of a language model on one device: what a loss has besides cross-entropy, and capped logits.
#include "nn/nn_testing.h"
#include "nn/small_llama.h"

namespace gangway::nn_testing {
namespace {

TEST(LmHead, TermsOfALossAndCappedLogitsAgreeWithTheirDefinition) {
  Rig rig(make_ops);
  DecoderOptions options = test::small_llama();
  options.logit_cap = 1.5;
  const ModulePtr decoder = make_decoder(options);
  rig.materialize(*decoder, DType::f64);
  const Tensor tokens = rig.ids({2, 5}, 1, 17), labels = rig.ids({2, 5}, 2, 17);
  const Tensor weights = rig.normal({2, 5}, 3);
  Context ctx = rig.context();
  const StackScope scope(rig.temporaries);
  const Vector logits = get(decoder->forward(ctx, {&tokens, 1}, nullptr).at(0));
  for (const double x : logits) EXPECT_LT(std::fabs(x), 1.5);
  ctx.label_smoothing = 0.1;
  ctx.z_loss = 0.02;
  ctx.log_probs = true;
  const Values outputs = decoder->forward(ctx, Values{tokens, labels, weights}, nullptr);
  const Vector w = get(weights), ids = get(labels), log_probs = get(outputs.at(2));
  double loss = 0, weight = 0;
  for (size_t t = 0; t < 10; ++t) {
    const double* c = logits.data() + t * 17;
    double sum = 0, mean = 0;
    for (size_t v = 0; v < 17; ++v) {
      sum += std::exp(c[v]);
      mean += c[v] / 17;
    }
    const double lse = std::log(sum), log_p = c[static_cast<size_t>(ids[t])] - lse;
    EXPECT_NEAR(log_probs[t], log_p, 1e-12);
    loss += w[t] * (-0.9 * log_p + 0.1 * (lse - mean) + 0.02 * lse * lse);
    weight += w[t];
  }
  EXPECT_NEAR(get(outputs[0])[0], loss, 1e-12);
  EXPECT_NEAR(get(outputs[1])[0], weight, 1e-12);
}

}  // namespace
}  // namespace gangway::nn_testing

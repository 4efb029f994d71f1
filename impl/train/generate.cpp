// Text generation on the sharded model. Each new token runs all tokens before it again, without a cache of
// keys and values: that is simple, and it computes the same as training.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/interrupt.h"
#include "base/philox.h"
#include "parallel/collective_call.h"
#include "tensor/host_staging.h"
#include "tensor/host_view.h"
#include "train/step.h"

namespace gangway {
namespace {

// The last token that is made is not run again. Ranks of tp split a sequence evenly, so that they use only a
// multiple of tp positions.
void check_positions(const DecoderOptions& decoder, int tp, size_t prompt, int64_t new_tokens) {
  const int64_t given = static_cast<int64_t>(prompt), longest = decoder.max_positions;
  const int64_t most = longest / tp * tp;
  if (new_tokens == 0 || new_tokens - 1 <= most - given) return;
  const std::string used = most == longest ? "" : text(", of which tp ", tp, " uses ", most);
  fail(Code::invalid_argument, "generate: a prompt of ", given, " tokens and token_count = ", new_tokens,
       " need ", given, " + ", new_tokens - 1, " positions, but max_position_embeddings is ",
       decoder.max_positions, used, "; ask for fewer tokens or give the last ones of the prompt");
}

void check(Model& model, std::span<const int64_t> prompt, const GenerateOptions& options) {
  if (!model.materialized())
    fail(Code::invalid_state,
         "generate: the model has no storage yet; call parallelize or materialize first");
  const DecoderOptions* decoder = decoder_options(model.root());
  if (decoder == nullptr) fail(Code::invalid_argument, "generate: the model is not a decoder");
  if (model.device().kind() == DeviceKind::meta)
    fail(Code::invalid_argument, "generate: a meta device has no values");
  if (const int cp = model.gangs().mesh().degree(Axis::cp); cp > 1)
    fail(Code::not_supported, "generate: cp is ", cp,
         ", but sequences that grow by one token cannot be split evenly; ",
         "save the model and generate with cp 1");
  model.run().check_whole("generate");
  if (prompt.empty()) fail(Code::invalid_argument, "generate: the prompt is empty");
  for (const int64_t id : prompt)
    if (id < 0 || id >= decoder->vocab)
      fail(Code::invalid_argument, "generate: the prompt has id ", id, ", outside [0, ", decoder->vocab, ")");
  if (options.new_tokens < 0)
    fail(Code::invalid_argument, "generate: token_count = ", options.new_tokens, " is negative");
  if (!(std::isfinite(options.temperature) && options.temperature >= 0))
    fail(Code::invalid_argument, "generate: temperature = ", options.temperature,
         " is not a finite number >= 0");
  if (options.top_k < 0) fail(Code::invalid_argument, "generate: top_k = ", options.top_k, " is negative");
  check_positions(*decoder, model.gangs().mesh().degree(Axis::tp), prompt.size(), options.new_tokens);
}

std::string arguments_of(std::span<const int64_t> prompt, const GenerateOptions& options) {
  const std::string_view bytes(reinterpret_cast<const char*>(prompt.data()), prompt.size_bytes());
  CallSignature signature("generate");
  signature.add("new_tokens", options.new_tokens);
  signature.add("prompt length", prompt.size());
  signature.add("prompt hash", philox_key(0, bytes));
  signature.add("temperature", options.temperature);
  signature.add("top_k", options.top_k);
  signature.add("seed", options.seed);
  return signature.text();
}

// Returns the logits of the last position.
std::vector<double> last_logits(Model& model, const std::vector<int64_t>& tokens, Stream& stream) {
  const DecoderOptions& decoder = *decoder_options(model.root());
  // The length is a multiple of tp, because ranks of tp may split the sequence evenly. The padding comes
  // after the last token, which does not attend to it.
  const int64_t tp = model.gangs().mesh().degree(Axis::tp);
  const int64_t used = static_cast<int64_t>(tokens.size());
  const int64_t length = (used + tp - 1) / tp * tp;
  StackScope scope(model.temporaries());
  Context ctx = model.run().context(stream);
  const Tensor window = model.temporaries().allocate(DType::i64, Shape{1, length});
  const HostStaging ids(window);
  std::fill(std::copy(tokens.begin(), tokens.end(), ids.data<int64_t>()), ids.data<int64_t>() + length, 0);
  ids.send(stream);
  const Values outputs = model.run().forward(ctx, std::span<const Tensor>(&window, 1), nullptr);
  const Tensor row = outputs.at(0).reshape(Shape{length, decoder.vocab}).slice(0, used - 1, used);
  const Tensor wide = model.temporaries().allocate(DType::f64, row.shape());
  model.ops().cast(row, wide, stream);
  const HostView<double> logits(wide, stream);
  return {logits.begin(), logits.end()};
}

// Draws a token id; `uniform`, in [0, 1), is the random number. Of equal logits the lower id comes first.
// Returns -1 - id if the logit of token `id` is not finite.
int64_t sample(const std::vector<double>& logits, const GenerateOptions& options, double uniform) {
  std::vector<int64_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto logit = [&](int64_t id) { return logits[static_cast<size_t>(id)]; };
  for (const int64_t id : order)
    if (!std::isfinite(logit(id))) return -1 - id;
  const bool greedy = options.temperature == 0;
  const size_t keep = greedy               ? 1
                      : options.top_k == 0 ? order.size()
                                           : std::min(order.size(), static_cast<size_t>(options.top_k));
  std::partial_sort(order.begin(), order.begin() + static_cast<ptrdiff_t>(keep), order.end(),
                    [&](int64_t a, int64_t b) { return logit(a) != logit(b) ? logit(a) > logit(b) : a < b; });
  if (greedy) return order[0];
  std::vector<double> sums;
  double sum = 0;
  for (size_t i = 0; i < keep; ++i)
    sums.push_back(sum += std::exp((logit(order[i]) - logit(order[0])) / options.temperature));
  const auto chosen = std::upper_bound(sums.begin(), sums.end(), uniform * sum);
  return order[static_cast<size_t>(
      std::min<ptrdiff_t>(chosen - sums.begin(), static_cast<ptrdiff_t>(keep) - 1))];
}

int64_t from_first_rank(Gang& root, int64_t value) {
  Collective record;
  record.op = CollectiveOp::broadcast;
  record.in = &value;
  record.out = &value;
  record.count = 1;
  record.dtype = DType::i64;
  record.peer = 0;
  root.run_now(Channel::control, record);
  return value;
}

}  // namespace

std::vector<int64_t> generate(Model& model, std::span<const int64_t> prompt, const GenerateOptions& options,
                              Stream& stream) {
  Gangs& gangs = model.gangs();
  const CollectiveCall call(gangs, "generate");
  std::string arguments;
  call.check(
      [&] {
        arguments = arguments_of(prompt, options);
        check(model, prompt, options);
      },
      arguments);
  int64_t broken = -1;
  const std::vector<int64_t> made = call.run([&] {
    std::vector<int64_t> tokens(prompt.begin(), prompt.end());
    const uint64_t key = philox_key(options.seed, "generate");
    for (int64_t i = 0; i < options.new_tokens; ++i) {
      poll_interrupt_throttled();
      const std::vector<double> logits = last_logits(model, tokens, stream);
      // Rank 0 draws for all: floating-point results may differ between machines, and the ranks must not
      // diverge.
      int64_t next = 0;
      if (gangs.root()->rank() == 0)
        next = sample(logits, options, philox_uniform(key, static_cast<uint64_t>(i)));
      next = from_first_rank(*gangs.root(), next);
      if (next < 0) {
        broken = -1 - next;
        break;
      }
      tokens.push_back(next);
    }
    return std::vector<int64_t>(tokens.begin() + static_cast<ptrdiff_t>(prompt.size()), tokens.end());
  });
  if (broken >= 0)  // equal on all ranks, which throw together; the gangs stay usable
    fail(Code::invalid_state, "generate: the logit of token ", broken, " is not finite");
  return made;
}

}  // namespace gangway

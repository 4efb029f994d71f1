// Forwards without logits read the prompts in chunks, up to the last token of each. That one and each new
// token are read by a forward with logits, which takes one token of each row. Ranks of tp may split a
// sequence evenly, so that a forward reads a multiple of tp tokens: padding follows the last one, which no
// earlier token sees and the next forward writes over.
//
// With longrope, a row whose tokens get more than original_positions is long from then on: all its keys turn
// by other angles. They are read once more, for this row alone, as transformers' generate does.
#include "train/generate.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "base/interrupt.h"
#include "base/philox.h"
#include "nn/kv_cache.h"
#include "nn/rope_table.h"
#include "parallel/collective_call.h"
#include "parallel/pipeline/runtime.h"
#include "tensor/host_staging.h"
#include "tensor/host_view.h"
#include "train/sampling.h"

namespace gangway {
namespace {

// The most tokens of a prompt that one forward reads. It bounds the memory for activations.
constexpr int64_t kChunk = 512;

int64_t longest_of(const TokenRows& prompts) {
  size_t longest = 0;
  for (const auto& prompt : prompts) longest = std::max(longest, prompt.size());
  return static_cast<int64_t>(longest);
}

// The last token that is made is not read again.
void check_positions(const DecoderOptions& decoder, int tp, int64_t prompt, int64_t new_tokens) {
  if (new_tokens == 0) return;
  if (decoder.max_positions < tp)
    fail(Code::invalid_argument, "generate: max_position_embeddings is ", decoder.max_positions, ", and tp ",
         tp, " reads ", tp, " tokens at a time");
  if (new_tokens - 1 <= decoder.max_positions - prompt) return;
  fail(Code::invalid_argument, "generate: a prompt of ", prompt, " tokens and token_count = ", new_tokens,
       " need ", prompt, " + ", new_tokens - 1, " positions, but max_position_embeddings is ",
       decoder.max_positions, "; ask for fewer tokens or give the last ones of the prompt");
}

void check_prompt(const std::vector<int64_t>& prompt, size_t row, int64_t vocab) {
  if (prompt.empty()) fail(Code::invalid_argument, "generate: the prompt is empty (row ", row, ")");
  for (const int64_t id : prompt)
    if (id < 0 || id >= vocab)
      fail(Code::invalid_argument, "generate: the prompt has id ", id, ", outside [0, ", vocab, ") (row ",
           row, ")");
}

void check(Model& model, const TokenRows& prompts, const GenerateOptions& options) {
  if (!model.materialized())
    fail(Code::invalid_state,
         "generate: the model has no storage yet; call parallelize or materialize first");
  const DecoderOptions* decoder = decoder_options(model.root());
  if (decoder == nullptr) fail(Code::invalid_argument, "generate: the model is not a decoder");
  if (!decoder->causal)
    fail(Code::invalid_argument,
         "generate: the model's attention is not causal, so that every token depends on later ones");
  if (model.device().kind() == DeviceKind::meta)
    fail(Code::invalid_argument, "generate: a meta device has no values");
  if (prompts.empty()) fail(Code::invalid_argument, "generate: there is no prompt");
  for (size_t row = 0; row < prompts.size(); ++row) check_prompt(prompts[row], row, decoder->vocab);
  if (options.new_tokens < 0)
    fail(Code::invalid_argument, "generate: token_count = ", options.new_tokens, " is negative");
  check_sampling(options, decoder->vocab);
  check_positions(*decoder, model.gangs().mesh().degree(Axis::tp), longest_of(prompts), options.new_tokens);
}

uint64_t hash_of(uint64_t key, std::span<const int64_t> ids) {
  return philox_key(key, {reinterpret_cast<const char*>(ids.data()), ids.size_bytes()});
}

std::string arguments_of(const TokenRows& prompts, const GenerateOptions& options) {
  CallSignature signature("generate");
  signature.add("new_tokens", options.new_tokens);
  signature.add("prompts", prompts.size());
  uint64_t hash = 0;
  for (const auto& prompt : prompts) {
    signature.add("prompt length", prompt.size());
    hash = hash_of(hash, prompt);
  }
  signature.add("prompt hash", hash);
  signature.add("temperature", options.temperature);
  signature.add("top_k", options.top_k);
  signature.add("top_p", options.top_p);
  signature.add("min_p", options.min_p);
  signature.add("repetition_penalty", options.repetition_penalty);
  signature.add("stop tokens", hash_of(0, options.stop_tokens));
  signature.add("seed", options.seed);
  return signature.text();
}

// The rank that draws: the first one of the last stage.
int drawing_rank(Model& model) {
  Coordinates at{};
  if (const Pipeline* const pipeline = model.pipeline())
    at[static_cast<size_t>(Axis::pp)] = pipeline->cut().stage_rank().back();
  return model.gangs().mesh().rank(at);
}

class Generation {
 public:
  Generation(Model& model, const TokenRows& prompts, const GenerateOptions& options, bool listens,
             Stream& stream)
      : model_(model),
        prompts_(prompts),
        options_(options),
        listens_(listens),
        stream_(stream),
        rows_(prompts.size()),
        longest_(longest_of(prompts)),
        multiple_(model.gangs().mesh().degree(Axis::tp)),
        drawer_(drawing_rank(model)),
        draws_(model.gangs().root()->rank() == drawer_),
        short_length_(gangway::short_length(decoder_options(model.root())->rope)),
        cache_(cache_of(padding_of(prompts))),
        made_(rows_),
        ended_(rows_, false) {
    cache_.set_lengths(lengths_of(all_rows()));
  }

  // Returns whether all logits were finite.
  bool run() {
    if (options_.new_tokens > 0) read(cache_, all_rows(), longest_ - 1);
    const uint64_t key = philox_key(options_.seed, "generate");
    for (int64_t i = 0; i < options_.new_tokens && !all_ended(); ++i) {
      poll_interrupt_throttled();
      std::vector<int64_t> next(rows_ + 1, 0);  // the last one: whether a rank asks to end
      next[rows_] = stops_ ? 1 : 0;
      {
        read_again_what_got_long();
        const StackScope scope(model_.temporaries());
        const Values logits = forward(cache_, all_rows(), 1, true);
        if (draws_) draw(logits.at(0), key, static_cast<uint64_t>(i), next);
      }
      if (!exchange(next)) break;
      for (size_t row = 0; row < rows_; ++row)
        if (next[row] < 0) {
          broken_row_ = row;
          broken_ = -1 - next[row];
          return false;
        }
      add(next);
    }
    return true;
  }

  TokenRows take() { return std::move(made_); }
  size_t broken_row() const { return broken_row_; }
  int64_t broken_token() const { return broken_; }

 private:
  static std::vector<int64_t> padding_of(const TokenRows& prompts) {
    std::vector<int64_t> padding;
    const int64_t longest = longest_of(prompts);
    for (const auto& prompt : prompts) padding.push_back(longest - static_cast<int64_t>(prompt.size()));
    return padding;
  }
  bool all_ended() const { return std::find(ended_.begin(), ended_.end(), false) == ended_.end(); }
  std::vector<size_t> all_rows() const {
    std::vector<size_t> rows(rows_);
    std::iota(rows.begin(), rows.end(), size_t{0});
    return rows;
  }
  // The numbers of tokens that rows have so far.
  std::vector<int64_t> lengths_of(const std::vector<size_t>& rows) const {
    std::vector<int64_t> lengths;
    for (const size_t row : rows)
      lengths.push_back(static_cast<int64_t>(prompts_[row].size() + made_[row].size()));
    return lengths;
  }
  KvCache cache_of(std::vector<int64_t> padding) const {
    const int64_t positions = longest_ + options_.new_tokens - 1;
    return {std::move(padding), positions, positions + multiple_};
  }

  // The token of a row in a column: padding, the prompt, then what was made. A row that has ended repeats its
  // last token.
  int64_t token_at(size_t row, int64_t column) const {
    const auto& prompt = prompts_[row];
    const auto& made = made_[row];
    const int64_t length = static_cast<int64_t>(prompt.size());
    const int64_t at = column - (longest_ - length);
    if (at < 0) return 0;
    if (at < length) return prompt[static_cast<size_t>(at)];
    if (made.empty()) return prompt.back();
    return made[std::min(static_cast<size_t>(at - length), made.size() - 1)];
  }

  // Reads the columns of these rows, without logits, until the cache has used `end`.
  void read(KvCache& cache, const std::vector<size_t>& rows, int64_t end) {
    const int64_t most = decoder_options(model_.root())->max_positions / multiple_ * multiple_;
    const int64_t chunk = std::max(multiple_, std::min(most, kChunk / multiple_ * multiple_));
    while (cache.used() < end) {
      poll_interrupt_throttled();
      const StackScope scope(model_.temporaries());
      forward(cache, rows, std::min(chunk, end - cache.used()), false);
    }
  }

  void read_again_what_got_long() {
    std::vector<size_t> rows;
    std::vector<int64_t> padding;
    const std::vector<int64_t> lengths = lengths_of(all_rows());
    for (size_t row = 0; row < rows_; ++row) {
      if (ended_[row] || made_[row].empty() || !short_length_.exceeded_by(lengths[row]) ||
          short_length_.exceeded_by(lengths[row] - 1))
        continue;
      rows.push_back(row);
      padding.push_back(longest_ - static_cast<int64_t>(prompts_[row].size()));
    }
    if (rows.empty()) return;
    KvCache longs = cache_of(std::move(padding));
    longs.set_lengths(lengths_of(rows));
    read(longs, rows, cache_.used());
    Context ctx = model_.run().context(stream_);
    cache_.replace(ctx, rows, longs);
    cache_.set_lengths(lengths);
  }

  // Reads the next `tokens` columns of these rows. Returns the logits [rows, at least `tokens`, vocab], on
  // the ranks of the last stage, if they are wanted.
  Values forward(KvCache& cache, const std::vector<size_t>& rows, int64_t tokens, bool wants_logits) {
    const int64_t length = (tokens + multiple_ - 1) / multiple_ * multiple_;
    Context ctx = model_.run().context(stream_);
    ctx.cache = &cache;
    cache.set_wants_logits(wants_logits);
    const Tensor ids =
        model_.temporaries().allocate(DType::i64, Shape{static_cast<int64_t>(rows.size()), length});
    const HostStaging host(ids);
    auto* out = host.data<int64_t>();
    for (const size_t row : rows)
      for (int64_t i = 0; i < length; ++i) *out++ = i < tokens ? token_at(row, cache.used() + i) : 0;
    host.send(stream_);
    Values outputs = model_.pipeline() == nullptr ? model_.run().forward(ctx, std::span(&ids, 1), nullptr)
                                                  : model_.pipeline()->forward(ctx, {ids});
    cache.advance(tokens);
    return outputs;
  }

  void draw(const Tensor& logits, uint64_t key, uint64_t index, std::vector<int64_t>& next) {
    const int64_t vocab = logits.shape().back();
    const Tensor first = logits
                             .reshape(Shape{static_cast<int64_t>(rows_),
                                            logits.count() / static_cast<int64_t>(rows_) / vocab, vocab})
                             .slice(1, 0, 1);
    const Tensor wide = model_.temporaries().allocate(DType::f64, first.shape());
    model_.ops().cast(first, wide, stream_);
    const HostView<double> values(wide, stream_);
    std::vector<int64_t> earlier;
    for (size_t row = 0; row < rows_; ++row) {
      if (ended_[row]) continue;
      if (options_.repetition_penalty != 1) {
        earlier = prompts_[row];
        earlier.insert(earlier.end(), made_[row].begin(), made_[row].end());
      }
      const double uniform = philox_uniform(key, static_cast<uint64_t>(row) << 32 | index);
      next[row] = sample({values.begin() + static_cast<int64_t>(row) * vocab, static_cast<size_t>(vocab)},
                         earlier, options_, uniform);
    }
  }

  // One rank draws for all: floating-point results may differ between machines, and the ranks must not
  // diverge. Returns false if a rank asks to end.
  bool exchange(std::vector<int64_t>& next) {
    Gang& root = *model_.gangs().root();
    Collective record;
    record.op = listens_ ? CollectiveOp::all_gather : CollectiveOp::broadcast;
    std::vector<int64_t> all(listens_ ? next.size() * static_cast<size_t>(root.size()) : 0);
    record.in = next.data();
    record.out = listens_ ? all.data() : next.data();
    record.count = next.size();
    record.dtype = DType::i64;
    if (!listens_) record.peer = drawer_;
    root.run_now(Channel::control, record);
    if (!listens_) return true;
    bool goes_on = true;
    for (size_t r = 0; r < static_cast<size_t>(root.size()); ++r)
      goes_on = goes_on && all[r * next.size() + rows_] == 0;
    std::copy_n(all.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(drawer_) * next.size()), rows_,
                next.begin());
    return goes_on;
  }

  void add(const std::vector<int64_t>& next) {
    for (size_t row = 0; row < rows_; ++row) {
      if (ended_[row]) continue;
      made_[row].push_back(next[row]);
      ended_[row] = std::find(options_.stop_tokens.begin(), options_.stop_tokens.end(), next[row]) !=
                    options_.stop_tokens.end();
      if (options_.on_token && !stops_) stops_ = !options_.on_token(row, next[row]);
    }
  }

  Model& model_;
  const TokenRows& prompts_;
  const GenerateOptions& options_;
  const bool listens_;  // whether any rank has a function for new tokens
  Stream& stream_;
  const size_t rows_;
  const int64_t longest_, multiple_;
  const int drawer_;
  const bool draws_;
  const ShortLength short_length_;
  KvCache cache_;
  TokenRows made_;
  std::vector<bool> ended_;
  bool stops_ = false;
  size_t broken_row_ = 0;
  int64_t broken_ = -1;
};

}  // namespace

TokenRows generate(Model& model, const TokenRows& prompts, const GenerateOptions& options, Stream& stream) {
  const CollectiveCall call(model.gangs(), "generate");
  std::string arguments;
  const std::vector<int32_t> all = call.check(
      [&]() -> int32_t {
        arguments = arguments_of(prompts, options);
        check(model, prompts, options);
        return options.on_token ? 1 : 0;
      },
      arguments);
  const bool listens = std::find(all.begin(), all.end(), 1) != all.end();
  std::optional<Generation> generation;
  const bool finite = call.run([&] {
    generation.emplace(model, prompts, options, listens, stream);
    return generation->run();
  });
  if (!finite)  // equal on all ranks, which throw together; the gangs stay usable
    fail(Code::invalid_state, "generate: the logit of token ", generation->broken_token(),
         " is not finite (row ", generation->broken_row(), ")");
  return generation->take();
}

std::vector<int64_t> generate(Model& model, std::span<const int64_t> prompt, const GenerateOptions& options,
                              Stream& stream) {
  return generate(model, TokenRows{{prompt.begin(), prompt.end()}}, options, stream).at(0);
}

}  // namespace gangway

#include <cmath>

#include "nn/attention.h"
#include "nn/chain.h"
#include "nn/loss.h"

namespace gangway {
namespace {

void check_range(const char* field, int64_t value, int64_t least, int64_t most = kMostWidth) {
  if (value < least)
    fail(Code::invalid_argument, "Decoder: ", field, " is ", value, ", but must be ", least, " or more");
  if (value > most) fail(Code::invalid_argument, "Decoder: ", field, " is ", value, "; the most is ", most);
}

void check_dropout(const char* field, double value) {
  if (!(value >= 0 && value < 1))
    fail(Code::invalid_argument, "Decoder: ", field, " is ", value, ", outside of [0, 1)");
}

void check_factor(const char* field, double value) {
  if (!(value >= 0) || !std::isfinite(value))
    fail(Code::invalid_argument, "Decoder: ", field, " is ", value, ", but must be finite and 0 or more");
}

class Decoder final : public Chain {
 public:
  explicit Decoder(const DecoderOptions& options) : options_(completed(options)) {
    const double scale = options_.embedding_scale == 0 ? std::sqrt(static_cast<double>(options_.dim))
                                                       : options_.embedding_scale;
    add_child("model.embed_tokens", make_embedding(options_.vocab, options_.dim, options_.deviation, scale));
    if (options_.learned_positions)
      add_child("model.embed_positions",
                make_learned_positions(options_.max_positions, options_.dim, options_.deviation));
    if (options_.embedding_dropout != 0)
      add_child("model.embed_dropout", make_dropout(options_.embedding_dropout));
    add_layers();
    const ModulePtr head = make_head(options_.dim, options_.vocab, options_.eps, options_.deviation,
                                     options_.logit_cap, options_.norm_offset);
    if (options_.layer_norm) head->set_child(LmHead::kNorm, make_layernorm(options_.dim, options_.eps));
    if (options_.tied) head->child(1).set_parameter(0, child(0).parameters()[0]);
    add_child("", head);
  }

  const char* kind() const override { return "Decoder"; }
  void add_options(CallSignature& signature) const override {
    signature.add("family", options_.family);
    signature.add("layers", options_.layers);
    signature.add("max_positions", options_.max_positions);
  }
  const DecoderOptions& options() const { return options_; }
  size_t gradient_count() const override { return 2; }  // of tokens and labels; both are absent

  std::vector<IdRule> id_rules() const override {
    return {child(0).id_rules().at(0), child(last()).id_rules().at(1)};
  }

  void check_inputs(std::span<const Spec> inputs) const override {
    if (inputs.empty() || inputs.size() > 3)
      fail(Code::invalid_argument,
           "Decoder: takes tokens, labels or none, and weights of tokens or none; got ", inputs.size(),
           " inputs");
    const Spec& tokens = inputs[0];
    if (tokens.shape.rank() != 2 || tokens.dtype != DType::i64 || tokens.shape[1] == 0)
      fail(Code::invalid_argument, "Decoder: tokens are ", tokens.text(), ", wanted i64 [batch, sequence]");
    check_sequence_length(options_, tokens.shape[1], "Decoder");
    if (inputs.size() > 1 && !(inputs[1].shape == tokens.shape))
      fail(Code::invalid_argument, "Decoder: labels are ", inputs[1].text(), " and tokens ", tokens.text(),
           "; they must have one shape");
    if (inputs.size() > 2 && !(inputs[2].shape == tokens.shape))
      fail(Code::invalid_argument, "Decoder: the weights of tokens are ", inputs[2].text(), " and tokens ",
           tokens.text(), "; they must have one shape");
  }

 private:
  // Layers with equal rotary options share one table.
  void add_layers() {
    const auto table = std::make_shared<RopeTable>(options_.rope, options_.head_dim);
    std::shared_ptr<RopeTable> of_windows = table;
    if (options_.window_rope_theta != 0)
      of_windows = std::make_shared<RopeTable>(
          RopeOptions{.theta = options_.window_rope_theta, .partial = options_.rope.partial},
          options_.head_dim);
    for (int64_t i = 0; i < options_.layers; ++i) {
      BlockOptions block = options_;
      block.window = window_of_layer(options_, i);
      add_child("model.layers." + std::to_string(i),
                make_block(block, block.window == 0 ? table : of_windows));
    }
  }

  DecoderOptions options_;
};

}  // namespace

DecoderOptions completed(const DecoderOptions& options) {
  DecoderOptions o = options;
  check_range("vocab", o.vocab, 1);
  check_range("dim", o.dim, 1);
  check_range("layers", o.layers, 1, 1 << 20);  // even the description of a layer takes memory
  check_range("ffn", o.ffn, 0);
  check_range("max_positions", o.max_positions, 1);
  check_range("window", o.window, 0);
  if (o.kv_heads == 0) o.kv_heads = o.heads;
  if (o.ffn == 0) o.ffn = o.gated_mlp ? (o.dim * 8 / 3 + 31) / 32 * 32 : 4 * o.dim;
  o.head_dim = checked_head_dim(o);
  check_dropout("embedding_dropout", o.embedding_dropout);
  check_dropout("residual_dropout", o.residual_dropout);
  check_dropout("attention_dropout", o.attention_dropout);
  check_factor("embedding_scale", o.embedding_scale);
  check_factor("logit_cap", o.logit_cap);
  check_factor("window_rope_theta", o.window_rope_theta);
  const size_t letter = o.window_layers.find_first_not_of("wf");
  if (letter != std::string::npos)
    fail(Code::invalid_argument, "Decoder: window_layers has \"", o.window_layers[letter], "\" at place ",
         letter, "; its letters are w (the window) and f (full attention)");
  return o;
}

ModulePtr make_decoder(const DecoderOptions& options) { return std::make_shared<Decoder>(options); }

const DecoderOptions* decoder_options(const Module& module) {
  const auto* decoder = dynamic_cast<const Decoder*>(&unwrapped(module));
  return decoder == nullptr ? nullptr : &decoder->options();
}

int64_t window_of_layer(const DecoderOptions& options, int64_t layer) {
  const std::string& letters = options.window_layers;
  if (letters.empty()) return options.window;
  return letters[static_cast<size_t>(layer) % letters.size()] == 'w' ? options.window : 0;
}

void check_sequence_length(const DecoderOptions& options, int64_t tokens, const char* what) {
  if (tokens > options.max_positions)
    fail(Code::invalid_argument, what, ": sequences of ", tokens,
         " tokens are longer than max_position_embeddings ", options.max_positions);
}

}  // namespace gangway

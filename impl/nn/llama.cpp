#include "nn/attention.h"
#include "nn/chain.h"
#include "nn/loss.h"

namespace gangway {
namespace {

void check_least(const char* field, int64_t value, int64_t least) {
  if (value < least)
    fail(Code::invalid_argument, "Llama: ", field, " is ", value, ", but must be ", least, " or more");
}

LlamaConfig completed(LlamaConfig c) {
  check_least("vocab", c.vocab, 1);
  check_least("dim", c.dim, 1);
  check_least("layers", c.layers, 0);
  check_least("ffn", c.ffn, 0);
  check_least("max_positions", c.max_positions, 1);
  const auto check_size = [](const char* field, int64_t size, int64_t most) {
    if (size > most) fail(Code::invalid_argument, "Llama: ", field, " is ", size, "; the most is ", most);
  };
  check_size("num_hidden_layers", c.layers, 1 << 20);  // each takes memory as soon as it is described
  check_size("vocab_size", c.vocab, kMostWidth);
  check_size("hidden_size", c.dim, kMostWidth);
  check_size("intermediate_size", c.ffn, kMostWidth);
  check_size("max_position_embeddings", c.max_positions, kMostWidth);
  if (c.kv_heads == 0) c.kv_heads = c.heads;
  if (c.ffn == 0) c.ffn = (c.dim * 8 / 3 + 31) / 32 * 32;
  return c;
}

AttentionOptions attention_options(const LlamaConfig& c) {
  return {.dim = c.dim,
          .heads = c.heads,
          .kv_heads = c.kv_heads,
          .head_dim = c.head_dim,
          .qkv_bias = c.qkv_bias,
          .out_bias = c.out_bias,
          .causal = true,
          .rope = c.rope,
          .deviation = c.deviation};
}

class Llama final : public Chain {
 public:
  explicit Llama(const LlamaConfig& config) : config_(completed(config)) {
    AttentionOptions attention = attention_options(config_);
    config_.head_dim = attention.head_dim = checked_head_dim(attention);
    const auto table = std::make_shared<RopeTable>(config_.rope, config_.head_dim);
    add_child("model.embed_tokens", make_embedding(config_.vocab, config_.dim, config_.deviation));
    for (int64_t i = 0; i < config_.layers; ++i)
      add_child("model.layers." + std::to_string(i),
                make_block(attention, config_.ffn, config_.eps, config_.mlp_bias, table));
    const ModulePtr head = make_head(config_.dim, config_.vocab, config_.eps, config_.deviation);
    if (config_.tied) head->child(1).set_parameter(0, child(0).parameters()[0]);
    add_child("", head);
  }

  const char* kind() const override { return "Llama"; }
  void add_options(Facts& facts) const override {
    facts.add("layers", config_.layers);
    facts.add("max_positions", config_.max_positions);
  }
  const LlamaConfig& config() const { return config_; }
  size_t gradient_count() const override { return 2; }  // absent: tokens and labels have none

  std::vector<IdRule> id_rules() const override {
    return {child(0).id_rules().at(0), child(last()).id_rules().at(1)};
  }

  void check_inputs(std::span<const Spec> inputs) const override {
    if (inputs.empty() || inputs.size() > 2)
      fail(Code::invalid_argument, "Llama: takes tokens, or tokens and labels, got ", inputs.size(),
           " inputs");
    const Spec& tokens = inputs[0];
    if (tokens.shape.rank() != 2 || tokens.dtype != DType::i64 || tokens.shape[1] == 0)
      fail(Code::invalid_argument, "Llama: tokens are ", tokens.text(), ", wanted i64 [batch, sequence]");
    if (tokens.shape[1] > config_.max_positions)
      fail(Code::invalid_argument, "Llama: sequences of ", tokens.shape[1], " tokens are longer than ",
           "max_position_embeddings ", config_.max_positions);
    if (inputs.size() > 1 && !(inputs[1].shape == tokens.shape))
      fail(Code::invalid_argument, "Llama: labels are ", inputs[1].text(), " and tokens ", tokens.text(),
           "; they must have one shape");
  }

 private:
  LlamaConfig config_;
};

}  // namespace

ModulePtr make_llama(const LlamaConfig& config) { return std::make_shared<Llama>(config); }

const LlamaConfig* llama_config(const Module& module) {
  const auto* llama = dynamic_cast<const Llama*>(&unwrapped(module));
  return llama == nullptr ? nullptr : &llama->config();
}

}  // namespace gangway

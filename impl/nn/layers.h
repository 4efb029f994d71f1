// The built-in layers and the decoder made of them, each with its single-device meaning and Hugging Face's
// names and shapes. Construction describes (shapes, names, first values); it takes no memory. Refusals are
// INVALID_ARGUMENT.
//
// Each layer has its own .cpp: linear, embedding, rmsnorm, attention (with rotary), mlp, block, decoder,
// loss. Thread rule: that of a module (nn/module.h).
#pragma once

#include <memory>
#include <string>

#include "nn/module.h"

namespace gangway {

// y = x W^T + b: x [.., in], weight [out, in], bias [out].
ModulePtr make_linear(int64_t in, int64_t out, bool bias, double deviation = 0.02);

// ids i64 [..] -> [.., dim]; weight [rows, dim]. An id outside [0, rows) gives NaN: nn/ids.h refuses it.
ModulePtr make_embedding(int64_t rows, int64_t dim, double deviation = 0.02);

// inputs {x} or {x, residual}; outputs {y, sum}: sum = x + residual, in memory of its own, or x itself.
// owns_gradient, inside of a block: the norm may write over x and over the gradient of y. `sum` then lies
// over x. A frame does not keep y, because backward makes it once more in its own pass, over that gradient.
ModulePtr make_rmsnorm(int64_t dim, double eps, bool owns_gradient = false);

// Rotary frequencies; Llama-3 scaling when factor > 1.
struct RopeOptions {
  double theta = 10000;
  double factor = 1;  // "llama3": factor, low_freq_factor, high_freq_factor, original_max_position_embeddings
  double low_frequency_factor = 1, high_frequency_factor = 4;
  int64_t original_positions = 8192;
};

struct AttentionOptions {
  int64_t dim = 0, heads = 0, kv_heads = 0;
  int64_t head_dim = 0;  // 0: dim / heads
  bool qkv_bias = false, out_bias = false;
  bool causal = true;
  bool qk_norm = false;  // RMSNorm over each head of q and k, before the rotary angles
  double eps = 1e-5;     // of norms
  RopeOptions rope;
  double deviation = 0.02;
};
// x [B, S, dim] -> the same; children q_proj, k_proj, v_proj, o_proj, core_attention; with qk_norm q_norm and
// k_norm, whose weights are [head_dim].
ModulePtr make_attention(const AttentionOptions& options);

// SwiGLU: down(silu(gate(x)) * up(x)); children gate_proj, up_proj, down_proj.
ModulePtr make_mlp(int64_t dim, int64_t ffn, bool bias, double deviation = 0.02);

struct BlockOptions : AttentionOptions {
  int64_t ffn = 0;
  bool mlp_bias = false;
};
// Pre-norm block: children input_layernorm, self_attn, post_attention_layernorm, mlp. x [B, S, dim] -> the
// same.
ModulePtr make_block(const BlockOptions& options);

// Runs modules one after the other: children "0", "1", ..., each with one input and one output. The last one
// may have more inputs: those of the whole after its first (labels) go to it and have no gradients.
ModulePtr make_sequential(std::vector<ModulePtr> modules);

// Every fact that a decoder is built from; families/family.cpp names each of them. A model family is a set of
// such facts. kv_heads 0: heads; head_dim 0: dim / heads; ffn 0: 8/3 dim, rounded up to a multiple of 32.
struct DecoderOptions : BlockOptions {
  DecoderOptions() {
    dim = 256;
    heads = 8;
  }
  std::string family = "llama";  // as model_type of config.json; nn only keeps it
  int64_t vocab = 256;
  int64_t layers = 4;
  int64_t max_positions = 2048;
  // Each token attends to so many tokens, itself included; 0: to all before it. A window below max_positions
  // is refused.
  int64_t window = 0;
  bool tied = false;  // lm_head's weight is embed_tokens' parameter
};

// Children "model.embed_tokens", "model.layers.N", and an unnamed head {"model.norm", "lm_head"}.
// forward({tokens [B, S]}) -> {logits [B, S, vocab]} (null frame only).
// forward({tokens, labels [B, S]}) -> {loss, weight}: f64 [1] sum of -log p over labels that are not -100
// (already shifted), and their number. backward({}) starts from ctx.loss_scale. With ctx.fused_loss it makes
// the loss, too, in one pass with the head's gradients. NOT_SUPPORTED: a window below max_positions.
ModulePtr make_decoder(const DecoderOptions& options);
// The options that a decoder was built from, with every 0 that means "derived" filled in. Looks through
// wrappers. Null: the module is no decoder.
const DecoderOptions* decoder_options(const Module& module);

// --- a module whose computation comes from the caller ------------------------------------------------------

class Custom;

// The phases of a custom module. Each throws an Error{caller} to fail. Tensors are views that are valid
// during the call.
class CustomBehaviour {
 public:
  struct Call {
    Custom& module;
    Context& ctx;
    Frame* frame;  // null: nothing is saved
    std::span<const Tensor> inputs, outputs;
    std::span<const Tensor> output_grads, input_grads;  // absent: zero, or not wanted
    std::vector<ParameterPtr> parameters;               // value, grad (zeroed before first use)
    void* state = nullptr;  // in: what forward left; forward may set it (freed once through free_state)
  };
  virtual ~CustomBehaviour() = default;
  virtual Specs shapes(Custom& module, Context& ctx, std::span<const Spec> inputs) = 0;
  virtual void forward(Call& call) = 0;
  virtual void backward_input(Call& call) = 0;
  virtual bool has_backward_weight() const = 0;
  virtual void backward_weight(Call& call) = 0;
  virtual void free_state(void* state) noexcept = 0;
  virtual bool accepts(DType compute) const = 0;
};

struct CustomOptions {
  std::string name = "Custom";
  int input_count = 1, output_count = 1;
  struct Parameter {
    std::string name;
    Shape shape;
    Init init;
  };
  std::vector<Parameter> parameters;
  std::vector<Module::Child> children;
  std::string parallel_plan;  // Module::parallel_plan
};
std::shared_ptr<Module> make_custom(const CustomOptions& options, std::shared_ptr<CustomBehaviour> behaviour);

}  // namespace gangway

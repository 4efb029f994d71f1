// The built-in layers and the decoder made of them. Each has its meaning on a single device, and Hugging
// Face's names and shapes. A make function only describes the layer (shapes, names, initial values) and takes
// no memory for parameters. It refuses wrong options with INVALID_ARGUMENT.
//
// Each layer has a .cpp of its own name; the rotary embedding is in attention.cpp and rope_table.cpp, and the
// head in loss.cpp. Thread rule: that of a module (nn/module.h).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "nn/module.h"

namespace gangway {

// y = x W^T + b: x [.., in], weight [out, in], bias [out].
ModulePtr make_linear(int64_t in, int64_t out, bool bias, double deviation = 0.02);
// Likewise, with a bias that is not added: {x} -> {x W^T, b}, for compute that adds it later.
ModulePtr make_linear_skip_bias_add(int64_t in, int64_t out, double deviation = 0.02);

// ids i64 [..] -> [.., dim], the rows of weight [rows, dim] times `scale`, which is rounded to the compute
// dtype. The result of an id outside [0, rows) is NaN; callers refuse such ids before they run the module
// (nn/ids.h).
ModulePtr make_embedding(int64_t rows, int64_t dim, double deviation = 0.02, double scale = 1);

// Inputs {x} or {x, residual}; outputs {y, sum}. `sum` is x + residual in memory of its own, or x itself if
// there is no residual. With owns_gradient, as inside a block, the norm may overwrite x and the gradient of
// y: `sum` is written over x, and a frame does not keep y, because backward recomputes it in its own pass
// over the memory of that gradient. With an offset of 1 the weights count from 1: y = normed x (1 + weight),
// and they start at 0.
ModulePtr make_rmsnorm(int64_t dim, double eps, bool owns_gradient = false, double offset = 0);
// Layer normalization with weight and bias, with the same inputs and outputs as an RMSNorm.
ModulePtr make_layernorm(int64_t dim, double eps, bool owns_gradient = false);

// x [B, S, dim] -> x + the rows of weight [positions, dim] for the tokens' positions (nn/documents.h).
// INVALID_ARGUMENT from a forward: a token has a position of `positions` or more.
ModulePtr make_learned_positions(int64_t positions, int64_t dim, double deviation = 0.02);

// x [.., D] -> activation(x).
ModulePtr make_activation(Activation activation);

// x [.., D] -> x, of which each element is zero with the probability, and else divided by 1 - probability. It
// acts on forwards that a backward follows. The bits depend on the seed, the module's name, the step and the
// element's place in the global batch (nn/dropout.h). With owns_input, as inside a block, the result may be
// written over x.
ModulePtr make_dropout(double probability, bool owns_input = false);

// How rotary frequencies are scaled. llama3, linear and yarn do nothing at factor 1.
enum class RopeScaling : uint8_t { llama3, linear, yarn, longrope };

// Rotary angles: entry i of the first int(head_dim * partial) elements of a head turns by position *
// theta^(-2 i / that number), scaled. INVALID_ARGUMENT from what is made with them: a factor below 1, or
// values with which a scaling cannot work.
struct RopeOptions {
  double theta = 10000;
  // In config.json: factor, low_freq_factor, high_freq_factor, original_max_position_embeddings.
  double factor = 1;
  double low_frequency_factor = 1, high_frequency_factor = 4;  // of llama3
  int64_t original_positions = 8192;                           // of llama3, yarn and longrope
  RopeScaling scaling = RopeScaling::llama3;
  double partial = 1;  // partial_rotary_factor; 0: nothing turns
  // Cosines and sines are multiplied by it; 0: by what the scaling says.
  double attention_factor = 0;
  double beta_fast = 32, beta_slow = 1, mscale = 0, mscale_all_dim = 0;  // of yarn
  bool truncate = true;                                                  // of yarn
  // Of longrope: frequencies are divided by them, in documents of up to original_positions tokens by the
  // short ones, in longer ones by the long ones.
  std::vector<double> short_factors = {}, long_factors = {};
  bool operator==(const RopeOptions&) const = default;
};

// RMSNorm on q and k, before the rotary angles: over each head, with a weight [head_dim], or over all heads
// together, with a weight of the whole width.
enum class QkNorm : uint8_t { none, head, width };

struct AttentionOptions {
  int64_t dim = 0, heads = 0, kv_heads = 0;
  int64_t head_dim = 0;  // 0: dim / heads
  bool qkv_bias = false, out_bias = false;
  bool causal = true;
  QkNorm qk_norm = QkNorm::none;
  double eps = 1e-5;       // of norms
  double norm_offset = 0;  // of norms; 1: their weights count from 1
  double score_scale = 0;  // 0: 1 / sqrt(head_dim)
  double score_cap = 0;    // scores become cap tanh(score / cap); 0: they do not
  int64_t window = 0;      // query i sees key j if i - j < window; 0: none
  bool sinks = false;      // one learned score per query head
  // Of the probabilities of attention. Other values than 0 can be kept, and written to files, but the module
  // refuses to train with them: NOT_SUPPORTED from check_forward and forward.
  double attention_dropout = 0;
  RopeOptions rope;
  double deviation = 0.02;
};
// x [B, S, dim] -> [B, S, dim]. Children q_proj, k_proj, v_proj, o_proj, core_attention; with qk_norm also
// q_norm and k_norm.
ModulePtr make_attention(const AttentionOptions& options);

// Gated feed-forward: down(activation(gate(x)) * up(x)); SwiGLU with silu. Children gate_proj, up_proj,
// down_proj.
ModulePtr make_mlp(int64_t dim, int64_t ffn, bool bias, double deviation = 0.02,
                   Activation activation = Activation::silu);
// Feed-forward without a gate: down(activation(up(x))). Children up_proj, down_proj.
ModulePtr make_plain_mlp(int64_t dim, int64_t ffn, bool bias, Activation activation, double deviation = 0.02);

// Where a block has its norms, for each of its halves f, attention and the mlp:
//   before  x + f(norm(x))             as in Llama
//   after   x + norm(f(x))             as in OLMo 2
//   both    x + norm(f(norm(x)))       as in Gemma 2
enum class BlockNorms : uint8_t { before, after, both };

struct BlockOptions : AttentionOptions {
  int64_t ffn = 0;
  bool mlp_bias = false;
  bool gated_mlp = true;  // false: make_plain_mlp
  Activation activation = Activation::silu;
  BlockNorms norms = BlockNorms::before;
  bool layer_norm = false;  // layer norms with biases in place of RMS norms
  // A dropout of each half's output, before it is added: children self_attn_dropout and mlp_dropout. Needs
  // norms before the halves.
  double residual_dropout = 0;
};
// x [B, S, dim] -> [B, S, dim]. Children with Hugging Face's names, in the order in which they run:
//   before  input_layernorm, self_attn, post_attention_layernorm, mlp
//   after   self_attn, post_attention_layernorm, mlp, post_feedforward_layernorm
//   both    input_layernorm, self_attn, post_attention_layernorm, pre_feedforward_layernorm, mlp,
//           post_feedforward_layernorm
ModulePtr make_block(const BlockOptions& options);

// Runs modules one after the other: children "0", "1", ..., each with one input and one output. The last
// module may have more inputs. It gets all inputs of the sequence after the first one (such as labels); they
// have no gradients.
ModulePtr make_sequential(std::vector<ModulePtr> modules);

// Every option that a decoder is built from. A model family is a set of values of these options; the table in
// families/family.cpp has a name for each option. kv_heads 0: heads; head_dim 0: dim / heads; ffn 0: 8/3 dim,
// rounded up to a multiple of 32, or 4 dim in an mlp without a gate.
struct DecoderOptions : BlockOptions {
  DecoderOptions() {
    dim = 256;
    heads = 8;
  }
  std::string family = "llama";  // model_type of config.json; nn only stores it
  int64_t vocab = 256;
  int64_t layers = 4;
  int64_t max_positions = 2048;
  bool tied = false;  // lm_head and embed_tokens share one weight
  // Whether a vector for each of max_positions positions is added to embed_tokens' output.
  bool learned_positions = false;
  // A dropout of what the layers get, embeddings and learned positions: a child "model.embed_dropout".
  double embedding_dropout = 0;
  double logit_cap = 0;        // logits become cap tanh(logit / cap); 0: they do not
  double embedding_scale = 1;  // of embed_tokens' output; 0: sqrt(dim)
  // Which layers have the window: layer i does if letter i of this text, which repeats, is 'w', and does not
  // if it is 'f' (full attention). Empty: all have it.
  std::string window_layers;
  // The rotary theta of the layers with a window, which then have no scaling; 0: `rope` is for all layers.
  double window_rope_theta = 0;
};

// Children "model.embed_tokens", with learned positions "model.embed_positions", "model.layers.N", and an
// unnamed head {"model.norm", "lm_head"}. With a dropout of the embedding also "model.embed_dropout".
// forward({tokens [B, S]}) -> {logits [B, S, vocab]} (null frame only).
// forward({tokens, labels [B, S]}) -> {loss, weight}: the sum of -log p over the labels that are not -100,
// as f64 [1], and the number of such labels. label[i] is what token[i] must predict.
// forward({tokens, labels, weights [B, S]}) weighs the tokens and gives the sum of weights. backward({})
// starts from ctx.loss_scale. With ctx.fused_loss backward computes the loss, too, in one pass with the
// head's gradients.
ModulePtr make_decoder(const DecoderOptions& options);
// Returns options with values in place of every 0 that means "derived". INVALID_ARGUMENT: one is out of its
// range.
DecoderOptions completed(const DecoderOptions& options);
// Returns the options that a decoder was built from, with values in place of every 0 that means "derived".
// Also finds a decoder inside wrappers. Null: the module is no decoder.
const DecoderOptions* decoder_options(const Module& module);
// Returns the window of a layer, by its number in the whole model; 0: it has none.
int64_t window_of_layer(const DecoderOptions& options, int64_t layer);
// INVALID_ARGUMENT: sequences of `tokens` tokens are longer than max_positions. The text begins with `what`,
// as "Decoder".
void check_sequence_length(const DecoderOptions& options, int64_t tokens, const char* what);

// --- custom modules: the caller supplies the computation ---------------------------------------------------

class Custom;

// The phases of a custom module. A phase fails by throwing an Error with Code::caller. The tensors are views
// that are valid during the call.
class CustomBehaviour {
 public:
  struct Call {
    Custom& module;
    Context& ctx;
    Frame* frame;  // null: nothing is saved
    std::span<const Tensor> inputs, outputs;
    // An absent output gradient is zero; an absent input gradient is not wanted.
    std::span<const Tensor> output_grads, input_grads;
    std::vector<ParameterPtr> parameters;  // their gradients are zeroed before the first use
    void* state = nullptr;  // set by forward for the phases of backward; freed once through free_state
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
  // Which modules below it should be parameter groups: patterns of paths that start at it, as in
  // path_matches.
  std::vector<std::string> parameter_groups;
};
std::shared_ptr<Module> make_custom(const CustomOptions& options, std::shared_ptr<CustomBehaviour> behaviour);

}  // namespace gangway

/* Built-in layers, and the decoders made of them. All functions are local: they make descriptions
 * (module.h). */
#ifndef GANGWAY_LAYERS_H
#define GANGWAY_LAYERS_H

#include <gangway/module.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A function of each number, as the activation of a feed-forward layer. */
typedef int32_t gw_activation;
enum gw_activation_value {
  GW_ACTIVATION_INVALID = -1,
  GW_ACTIVATION_SILU = 0,
  GW_ACTIVATION_GELU_TANH = 1, /* gelu_new, gelu_pytorch_tanh: GELU by way of tanh. */
  GW_ACTIVATION_GELU = 2,      /* GELU by way of erf. */
  GW_ACTIVATION_RELU = 3,
  GW_ACTIVATION_TANH = 4
};

/* RMS norms of q and k, before the rotation. */
typedef int32_t gw_qk_norm;
enum gw_qk_norm_value {
  GW_QK_NORM_INVALID = -1,
  GW_QK_NORM_NONE = 0,
  GW_QK_NORM_HEAD = 1, /* Over each head, with weights [head_dim]. */
  GW_QK_NORM_WIDTH = 2 /* Over all heads together, with weights of the whole width. */
};

/* Where a block has its norms, for each of its halves f, attention and feed-forward. */
typedef int32_t gw_block_norms;
enum gw_block_norms_value {
  GW_BLOCK_NORMS_INVALID = -1,
  GW_BLOCK_NORMS_BEFORE = 0, /* x + f(norm(x)) */
  GW_BLOCK_NORMS_AFTER = 1,  /* x + norm(f(x)) */
  GW_BLOCK_NORMS_BOTH = 2    /* x + norm(f(norm(x))) */
};

/* How rotary frequencies are scaled, as rope_type of a config.json says it. */
typedef int32_t gw_rope_scaling;
enum gw_rope_scaling_value {
  GW_ROPE_SCALING_INVALID = -1,
  GW_ROPE_SCALING_LLAMA3 = 0,
  GW_ROPE_SCALING_LINEAR = 1,
  GW_ROPE_SCALING_YARN = 2,
  GW_ROPE_SCALING_LONGROPE = 3 /* By factors for short sequences, and others for long ones. */
};

/* Every fact that a decoder is built from. The defaults are those of the family llama. */
typedef struct gw_decoder_options {
  size_t struct_size;
  const gw_ext *next;
  /* The model family, by its model_type in a Hugging Face config.json, like "llama" or "qwen3". The model is
   * saved in the keys of its family. Default "llama", which null means as well. A text that the library wrote
   * here lives as long as the library. */
  const char *family;
  int64_t vocab;         /* Default 256. */
  int64_t dim;           /* Default 256. hidden_size. */
  int64_t layers;        /* Default 4. At least 1. */
  int64_t heads;         /* Default 8. */
  int64_t kv_heads;      /* Default 0: heads. */
  int64_t head_dim;      /* Default 0: dim / heads. */
  int64_t ffn;           /* Default 0: 8/3 dim up to a multiple of 32. intermediate_size. */
  int64_t max_positions; /* Default 2048. */
  int64_t window;        /* Default 0: none. sliding_window: a token sees this many, itself included. */
  /* Which layers have the window: layer i does if letter i of this text, which repeats, is w, and does not if
   * it is f (full attention): "wwwwwf". Default "": all, and so is null. A text that the library wrote here
   * lives as long as the library. */
  const char *window_layers;
  double eps;                        /* Default 1e-5. */
  double rope_theta;                 /* Default 10000. */
  double rope_factor;                /* Default 1: none, unless rope_scaling is longrope. */
  double rope_low_frequency_factor;  /* Default 1. Of llama3. */
  double rope_high_frequency_factor; /* Default 4. Of llama3. */
  int64_t rope_original_positions;   /* Default 8192. Of llama3, yarn and longrope. */
  double initializer_range;          /* Default 0.02. */
  int32_t qkv_bias;                  /* Default 0. */
  int32_t out_bias;                  /* Default 0. o_proj.bias. */
  int32_t mlp_bias;                  /* Default 0. */
  int32_t tied;                      /* Default 0. 1: lm_head.weight is model.embed_tokens.weight. */
  gw_qk_norm qk_norm;                /* Default GW_QK_NORM_NONE. */
  gw_block_norms norms;              /* Default GW_BLOCK_NORMS_BEFORE. */
  gw_activation activation;          /* Default GW_ACTIVATION_SILU. */
  int32_t sinks;                     /* Default 0. 1: a learned score for each query head (gpt_oss). */
  double norm_offset;                /* Default 0. 1: the weights of norms count from 1. */
  double embedding_scale;            /* Default 1. Of the embedding's output; 0: the square root of dim. */
  double score_scale;                /* Default 0: 1 / sqrt(head_dim). */
  double score_cap;                  /* Default 0: none. Scores of attention become cap tanh(score / cap). */
  double logit_cap;                  /* Default 0: none. Logits become cap tanh(logit / cap). */
  /* Of layers with the window, which then have no scaling. Default 0: rope_theta. */
  double window_rope_theta;
  gw_rope_scaling rope_scaling; /* Default GW_ROPE_SCALING_LLAMA3. */
  int32_t rope_truncate;        /* Default 1. Of yarn: the bounds of its ramp are whole numbers. */
  double rope_partial;          /* Default 1. The part of each head that is rotated; 0: none. */
  double rope_attention_factor; /* Default 0: what yarn or longrope says. Of cosines and sines. */
  double rope_beta_fast;        /* Default 32. Of yarn. */
  double rope_beta_slow;        /* Default 1. Of yarn. */
  double rope_mscale;           /* Default 0. Of yarn. */
  double rope_mscale_all_dim;   /* Default 0. Of yarn. */
  /* The factors of longrope for sequences of up to rope_original_positions tokens, and for longer ones: a
   * number for each rotated pair, with spaces between them. Default "", and so is null. A text that the
   * library wrote here lives as long as the library. */
  const char *rope_short_factors;
  const char *rope_long_factors;
  int32_t layer_norm;        /* Default 0. 1: layer norms with biases, in place of RMS norms (gpt2). */
  int32_t gated_mlp;         /* Default 1. 0: down(activation(up(x))), as in gpt2. */
  int32_t learned_positions; /* Default 0. 1: a vector for each of max_positions positions (gpt2). */
  int32_t reserved;
  double embedding_dropout; /* Default 0. embd_pdrop (gpt2), in training: of what the first layer gets. */
  double residual_dropout;  /* Default 0. resid_pdrop, in training: of the output of each half of a block. */
  /* Default 0. attn_pdrop, of the probabilities of attention. Other values are kept and saved, but a model
   * with one only evaluates and generates: training has none, and is NOT_SUPPORTED until it is 0. The bits of
   * the two other dropouts are those of gw_dropout_create. */
  double attention_dropout;
} gw_decoder_options;

typedef struct gw_attention_options {
  size_t struct_size;
  const gw_ext *next;
  int64_t dim;              /* Required. */
  int64_t heads;            /* Required. */
  int64_t kv_heads;         /* Default 0: heads. */
  int64_t head_dim;         /* Default 0: dim / heads. */
  double rope_theta;        /* Default 10000. */
  double initializer_range; /* Default 0.02. */
  double eps;               /* Default 1e-5. Of the norms that qk_norm makes. */
  int32_t qkv_bias;         /* Default 0. */
  int32_t out_bias;         /* Default 0. */
  int32_t causal;           /* Default 1. */
  gw_qk_norm qk_norm;       /* Default GW_QK_NORM_NONE. */
  int64_t window;           /* Default 0: none. Token i sees token j if i - j < window. */
  double norm_offset;       /* Default 0. 1: the weights of norms count from 1. */
  double score_scale;       /* Default 0: 1 / sqrt(head_dim). */
  double score_cap;         /* Default 0: none. Scores become cap tanh(score / cap). */
  int32_t sinks;            /* Default 0. 1: a learned score for each query head. */
  int32_t reserved;
} gw_attention_options;

GW_API void gw_decoder_options_init(gw_decoder_options *options, size_t size);
/* Local. Fills *options, which gw_decoder_options_init has set up, with the defaults of a family.
 * NOT_SUPPORTED: no such family; the text names those that there are. After a failure *options is as
 * before. */
GW_API gw_status gw_decoder_options_from_family(const char *family, gw_decoder_options *options);
/* Local. Makes a decoder: {tokens i64 [B, S]} -> logits [B, S, vocab]; with labels i64 [B, S], of which
 * label[i] is what token[i] must predict -> {loss sum, weight}. The caller releases *out_model.
 * INVALID_ARGUMENT names the field and the rule, also for an option that the family's config.json cannot say.
 * NOT_SUPPORTED: no such family. */
GW_API gw_status gw_decoder_create(const gw_decoder_options *options, gw_module **out_model);
/* Local. Fills *options, which gw_decoder_options_init has set up, from folder/config.json as transformers
 * writes it. A key that is missing or null means what it means to the class of its family in transformers:
 *
 *   config.json                                 field                 if it is missing        if it is null
 *   model_type                                  family                NOT_SUPPORTED           NOT_SUPPORTED
 *   vocab_size                                  vocab                 that of the class       CORRUPT
 *   hidden_size                                 dim                   4096                    CORRUPT
 *   num_hidden_layers                           layers                32                      CORRUPT
 *   num_attention_heads                         heads                 32                      CORRUPT
 *   num_key_value_heads                         kv_heads              that of the class       heads
 *   head_dim                                    head_dim              that of the class, or dim / heads
 *                                                                                 llama, mistral: dim / heads
 *   intermediate_size                           ffn                   that of the class       CORRUPT
 *   max_position_embeddings                     max_positions         that of the class       CORRUPT
 *   rms_norm_eps                                eps                   1e-6                    CORRUPT
 *   rope_theta                                  rope_theta            10000                   CORRUPT
 *   rope_scaling: rope_type (or type)           rope_scaling          none: rope_factor is 1
 *     factor                                    rope_factor           CORRUPT; of longrope and yarn:
 *                                                                     max_positions / original
 *     low_freq_factor                           rope_low_frequency_factor, likewise
 *     high_freq_factor                          rope_high_frequency_factor
 *     original_max_position_embeddings          rope_original_positions
 *     attention_factor                          rope_attention_factor 0
 *     beta_fast, beta_slow, mscale, mscale_all_dim, truncate          the fields of the same names
 *     short_factor, long_factor                 rope_short_factors, rope_long_factors
 *   partial_rotary_factor of a phi3             rope_partial          1                       1
 *   rope_parameters                             rope_theta and rope_scaling in one, as since transformers 5
 *   sliding_window                              window                4096                    0
 *   layer_types, or max_window_layers (28) of a qwen2 or qwen3, or sliding_window_pattern (6) of a
 *   gemma3_text                                 window_layers
 *   rope_local_base_freq of a gemma3_text       window_rope_theta     10000                   CORRUPT
 *   query_pre_attn_scalar of a gemma2 or gemma3_text
 *                                               score_scale           256                     CORRUPT
 *   attn_logit_softcapping of a gemma2          score_cap             50                      0
 *   final_logit_softcapping of a gemma2 or gemma3_text
 *                                               logit_cap             that of the class       0
 *   initializer_range                           initializer_range     0.02                    0.02
 *   attention_bias                              qkv_bias, out_bias    0, or what the class always has
 *   attention_out_bias (of this library)        out_bias              attention_bias          attention_bias
 *   mlp_bias                                    mlp_bias              0                       0
 *   tie_word_embeddings                         tied                  0                       0
 *
 * A gpt2 has n_embd, n_layer, n_head, n_inner (4 n_embd), n_positions and layer_norm_epsilon for dim, layers,
 * heads, ffn, max_positions and eps, and embd_pdrop, resid_pdrop and attn_pdrop (0.1 each) for
 * embedding_dropout, residual_dropout and attention_dropout.
 *
 * window is 0 for a llama, for a qwen2 or qwen3 without use_sliding_window, and where no layer has it.
 *
 * NOT_SUPPORTED, with key and value: another model_type, rope_type or hidden_act (silu, swish), dropouts of
 * other families that are not 0, partial_rotary_factor other than 1 except in a phi3,
 * use_bidirectional_attention, a quantization_config, and a key that the library does not know and that may
 * change what the model computes: one of its words is a word that configurations of models use. Keys that
 * change nothing (names, token ids, what generation reads, notes of a user) are ignored here and written
 * again by gw_module_save; the dtype of the files is theirs. CORRUPT: a value of the wrong kind or out of its
 * range. IO. After a failure *options is as before. */
GW_API gw_status gw_decoder_options_from_folder(const char *folder, gw_decoder_options *options);
/* Local. Makes a linear layer, y = x W^T + b: x [..., input_dim] -> [..., output_dim]. weight is [output_dim,
 * input_dim]. bias is 0: none; 1: added; 2 (skip_bias_add): not added, but the second output, {x W^T, b}, for
 * compute of the caller's that adds it. The caller releases *out_model. INVALID_ARGUMENT: a dim below 1,
 * another bias. */
GW_API gw_status gw_linear_create(int64_t input_dim, int64_t output_dim, int32_t bias, gw_module **out_model);
/* Local. Makes an embedding: ids i64 [...] -> rows of weight [rows, dim], as [..., dim]. The caller releases
 * *out_model. INVALID_ARGUMENT: a dim below 1. */
GW_API gw_status gw_embedding_create(int64_t rows, int64_t dim, gw_module **out_model);
/* Local. Makes an RMS norm: {x} or {x, residual}, each [..., dim] -> {y, sum}. The caller releases
 * *out_model. INVALID_ARGUMENT: dim or eps is not above 0. */
GW_API gw_status gw_rmsnorm_create(int64_t dim, double eps, gw_module **out_model);
/* Local. Makes a layer norm with weight and bias, with the inputs and outputs of an RMS norm. The caller
 * releases *out_model. INVALID_ARGUMENT: dim or eps is not above 0. */
GW_API gw_status gw_layernorm_create(int64_t dim, double eps, gw_module **out_model);
GW_API void gw_attention_options_init(gw_attention_options *options, size_t size);
/* Local. Makes self-attention with rotary embeddings: x [B, S, dim] -> [B, S, dim]. The caller releases
 * *out_model. INVALID_ARGUMENT names the field and the rule. */
GW_API gw_status gw_attention_create(const gw_attention_options *options, gw_module **out_model);
/* Local. Makes a SwiGLU: x [..., dim] -> [..., dim], by way of `ffn` features. The caller releases
 * *out_model. INVALID_ARGUMENT: a dim below 1. */
GW_API gw_status gw_mlp_create(int64_t dim, int64_t ffn, int32_t bias, gw_module **out_model);

typedef struct gw_feed_forward_options {
  size_t struct_size;
  const gw_ext *next;
  int64_t dim;              /* Required. */
  int64_t ffn;              /* Required. The number of features inside. */
  double initializer_range; /* Default 0.02. */
  gw_activation activation; /* Default GW_ACTIVATION_SILU. */
  int32_t bias;             /* Default 0. */
  int32_t plain;            /* Default 0: down(activation(gate(x)) * up(x)). 1: down(activation(up(x))). */
  int32_t reserved;
} gw_feed_forward_options;
GW_API void gw_feed_forward_options_init(gw_feed_forward_options *options, size_t size);
/* Local. Makes a feed-forward layer, by default the SwiGLU of gw_mlp_create: x [..., dim] -> [..., dim]. The
 * caller releases *out_model. INVALID_ARGUMENT names the field and the rule. */
GW_API gw_status gw_feed_forward_create(const gw_feed_forward_options *options, gw_module **out_model);
/* Local. Makes a layer that applies a function to each number: x [..., D] -> [..., D]. The caller releases
 * *out_model. INVALID_ARGUMENT: no such activation. */
GW_API gw_status gw_activation_create(gw_activation activation, gw_module **out_model);
/* Local. Makes a dropout: x [..., D] -> x, of which each number is zero with this probability, and else
 * divided by 1 - probability. It acts in forwards that a backward follows; others return x. The random bits
 * follow from the seed, the module's name, the step, and the number's place in the global batch: its row
 * (those of data coordinate 0 come first; of a frame, those of its microbatch), its token in the whole
 * sequence and its column. So every mesh, any number of microbatches in a step, and a recomputation drop the
 * same numbers. Where a plan splits x over tp, a row of the plan says how: sequence_parallel, or headwise for
 * parts of the width. The caller releases *out_model. INVALID_ARGUMENT: the probability is not in [0, 1). */
GW_API gw_status gw_dropout_create(double probability, gw_module **out_model);
/* Local. Makes a pre-norm block of norm, attention, norm and SwiGLU: x [B, S, dim] -> [B, S, dim]. The caller
 * releases *out_model. INVALID_ARGUMENT names the field and the rule. */
GW_API gw_status gw_block_create(const gw_attention_options *attention, int64_t ffn, double eps,
                                 gw_module **out_model);
/* Local. Makes a module that runs modules one after the other; they are its children "0", "1" and so on, and
 * it keeps references to them. The caller releases *out_model. INVALID_ARGUMENT: no module, or one twice.
 * INVALID_STATE: a module that is part of another one, or bound to gangs. */
GW_API gw_status gw_sequential_create(gw_module *const *models, size_t model_count, gw_module **out_model);

#ifdef __cplusplus
}
#endif
#endif

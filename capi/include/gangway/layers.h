/* Built-in layers, and the Llama family of models. All functions are local: they make descriptions
 * (module.h). */
#ifndef GANGWAY_LAYERS_H
#define GANGWAY_LAYERS_H

#include <gangway/module.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Fields as in a Hugging Face config.json. */
typedef struct gw_llama_options {
  size_t struct_size;
  const gw_ext *next;
  int64_t vocab;         /* 256 */
  int64_t dim;           /* 256; hidden_size */
  int64_t layers;        /* 4 */
  int64_t heads;         /* 8 */
  int64_t kv_heads;      /* 0: heads */
  int64_t head_dim;      /* 0: dim / heads */
  int64_t ffn;           /* 0: 8/3 dim up to a multiple of 32; intermediate_size */
  int64_t max_positions; /* 2048 */
  double eps;            /* 1e-5 */
  double rope_theta;     /* 10000 */
  double rope_factor;    /* 1: none; else Llama-3 scaling with the next three */
  double rope_low_frequency_factor;
  double rope_high_frequency_factor;
  int64_t rope_original_positions;
  double initializer_range; /* 0.02 */
  int32_t qkv_bias;         /* Qwen2 */
  int32_t out_bias;         /* o_proj.bias */
  int32_t mlp_bias;
  int32_t tied; /* lm_head.weight is model.embed_tokens.weight */
} gw_llama_options;

typedef struct gw_attention_options {
  size_t struct_size;
  const gw_ext *next;
  int64_t dim;              /* Required. */
  int64_t heads;            /* Required. */
  int64_t kv_heads;         /* Default 0: heads. */
  int64_t head_dim;         /* Default 0: dim / heads. */
  double rope_theta;        /* Default 10000. */
  double initializer_range; /* Default 0.02. */
  int32_t qkv_bias;         /* Default 0. */
  int32_t out_bias;         /* Default 0. */
  int32_t causal;           /* Default 1. */
  int32_t reserved;
} gw_attention_options;

GW_API void gw_llama_options_init(gw_llama_options *options, size_t size);
/* Local. inputs {tokens i64 [B, S]} -> logits [B, S, vocab]; with labels i64 [B, S], already shifted -> {loss
 * sum, weight}. The caller releases *out_model. INVALID_ARGUMENT names the field and the rule. */
GW_API gw_status gw_llama_create(const gw_llama_options *options, gw_module **out_model);
/* Local. Fills *options, which gw_llama_options_init has set up, from folder/config.json as transformers
 * writes it for the families llama, qwen2 and mistral:
 *
 *   config.json                                 field                 if it is missing or null
 *   vocab_size                                  vocab                 CORRUPT
 *   hidden_size                                 dim                   CORRUPT
 *   num_hidden_layers                           layers                CORRUPT
 *   num_attention_heads                         heads                 CORRUPT
 *   num_key_value_heads                         kv_heads              heads; qwen2: 32, mistral: 8
 *   head_dim                                    head_dim              hidden_size / num_attention_heads
 *   intermediate_size                           ffn                   CORRUPT
 *   max_position_embeddings                     max_positions         2048; qwen2: 32768, mistral: 131072
 *   rms_norm_eps                                eps                   1e-6
 *   rope_theta                                  rope_theta            10000
 *   rope_scaling: rope_type (or type) llama3:
 *     factor                                    rope_factor           CORRUPT; without scaling: 1
 *     low_freq_factor                           rope_low_frequency_factor, likewise
 *     high_freq_factor                          rope_high_frequency_factor
 *     original_max_position_embeddings          rope_original_positions
 *   rope_parameters                             rope_theta and rope_scaling in one, as since transformers 5
 *   initializer_range                           initializer_range     0.02
 *   attention_bias                              qkv_bias, out_bias    0; qwen2: always qkv_bias alone
 *   attention_out_bias (of this library)        out_bias              attention_bias
 *   mlp_bias                                    mlp_bias              0
 *   tie_word_embeddings                         tied                  0
 *
 * NOT_SUPPORTED, with the value: another model_type, rope_type or hidden_act (silu, swish), attention_dropout
 * not 0, partial_rotary_factor not 1, a sliding_window in use that is below max_position_embeddings, a
 * quantization_config. All other fields are ignored; the dtype of the files is theirs. CORRUPT: a value of
 * the wrong kind or out of its range. IO. After a failure *options is as before. */
GW_API gw_status gw_llama_options_from_folder(const char *folder, gw_llama_options *options);
/* Local. Makes a linear layer, y = x W^T + b: x [..., input_dim] -> [..., output_dim]. weight is [output_dim,
 * input_dim]. The caller releases *out_model. INVALID_ARGUMENT: a dim below 1. */
GW_API gw_status gw_linear_create(int64_t input_dim, int64_t output_dim, int32_t bias, gw_module **out_model);
/* Local. Makes an embedding: ids i64 [...] -> rows of weight [rows, dim], as [..., dim]. The caller releases
 * *out_model. INVALID_ARGUMENT: a dim below 1. */
GW_API gw_status gw_embedding_create(int64_t rows, int64_t dim, gw_module **out_model);
/* Local. Makes an RMS norm: {x} or {x, residual}, each [..., dim] -> {y, sum}. The caller releases
 * *out_model. INVALID_ARGUMENT: dim or eps is not above 0. */
GW_API gw_status gw_rmsnorm_create(int64_t dim, double eps, gw_module **out_model);
GW_API void gw_attention_options_init(gw_attention_options *options, size_t size);
/* Local. Makes self-attention with rotary embeddings: x [B, S, dim] -> [B, S, dim]. The caller releases
 * *out_model. INVALID_ARGUMENT names the field and the rule. */
GW_API gw_status gw_attention_create(const gw_attention_options *options, gw_module **out_model);
/* Local. Makes a SwiGLU: x [..., dim] -> [..., dim], by way of `ffn` features. The caller releases
 * *out_model. INVALID_ARGUMENT: a dim below 1. */
GW_API gw_status gw_mlp_create(int64_t dim, int64_t ffn, int32_t bias, gw_module **out_model);
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

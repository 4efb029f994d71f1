/* Built-in layers, and the decoders made of them. All functions are local: they make descriptions
 * (module.h). */
#ifndef GANGWAY_LAYERS_H
#define GANGWAY_LAYERS_H

#include <gangway/module.h>

#ifdef __cplusplus
extern "C" {
#endif

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
  double eps;            /* Default 1e-5. */
  double rope_theta;     /* Default 10000. */
  double rope_factor;    /* Default 1: none; above 1: Llama-3 scaling with the next three. */
  double rope_low_frequency_factor;
  double rope_high_frequency_factor;
  int64_t rope_original_positions;
  double initializer_range; /* Default 0.02. */
  int32_t qkv_bias;         /* Default 0. */
  int32_t out_bias;         /* Default 0. o_proj.bias. */
  int32_t mlp_bias;         /* Default 0. */
  int32_t tied;             /* Default 0. 1: lm_head.weight is model.embed_tokens.weight. */
  int32_t qk_norm;          /* Default 0. 1: RMS norms over each head of q and k, before the rotation. */
  int32_t reserved;
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
  int32_t qk_norm;          /* Default 0. 1: RMS norms over each head of q and k, before the rotation. */
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
 *   rope_scaling: rope_type (or type) llama3:
 *     factor                                    rope_factor           CORRUPT; without scaling: 1
 *     low_freq_factor                           rope_low_frequency_factor, likewise
 *     high_freq_factor                          rope_high_frequency_factor
 *     original_max_position_embeddings          rope_original_positions
 *   rope_parameters                             rope_theta and rope_scaling in one, as since transformers 5
 *   sliding_window                              window                4096                    0
 *   initializer_range                           initializer_range     0.02                    0.02
 *   attention_bias                              qkv_bias, out_bias    0, or what the class always has
 *   attention_out_bias (of this library)        out_bias              attention_bias          attention_bias
 *   mlp_bias                                    mlp_bias              0                       0
 *   tie_word_embeddings                         tied                  0                       0
 *
 * window is 0 for a llama, for a qwen2 or qwen3 without use_sliding_window, and where layer_types or
 * max_window_layers (28 if it is missing) give the window to no layer.
 *
 * NOT_SUPPORTED, with key and value: another model_type, rope_type or hidden_act (silu, swish),
 * attention_dropout not 0, partial_rotary_factor not 1, a quantization_config, and a key that the library
 * does not know and that may change what the model computes: one of its words is a word that configurations
 * of models use. Keys that change nothing (names, token ids, what generation reads, notes of a user) are
 * ignored here and written again by gw_module_save; the dtype of the files is theirs. CORRUPT: a value of the
 * wrong kind or out of its range. IO. After a failure *options is as before. */
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

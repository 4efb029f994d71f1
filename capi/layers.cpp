// Built-in layers, and the decoders made of them.
#include <gangway/layers.h>

#include "checkpoint/config_json.h"
#include "decoder_options.h"
#include "families/family.h"
#include "module_handle.h"

using namespace gangway;
using namespace gangway::capi;

namespace {

AttentionOptions attention_of(const gw_attention_options* options, const char* name) {
  const gw_attention_options o = read_struct(&required(options, name), gw_attention_options_init, name);
  AttentionOptions a;
  a.dim = o.dim;
  a.heads = o.heads;
  a.kv_heads = o.kv_heads != 0 ? o.kv_heads : o.heads;
  a.head_dim = o.head_dim;
  a.qkv_bias = o.qkv_bias != 0;
  a.out_bias = o.out_bias != 0;
  a.causal = o.causal != 0;
  a.qk_norm = enum_of<QkNorm>(o.qk_norm, GW_QK_NORM_WIDTH, "options.qk_norm");
  a.window = o.window;
  a.norm_offset = finite(o.norm_offset, "options.norm_offset");
  a.score_scale = finite(o.score_scale, "options.score_scale");
  a.score_cap = finite(o.score_cap, "options.score_cap");
  a.sinks = o.sinks != 0;
  a.eps = finite(o.eps, "options.eps");
  a.rope.theta = finite(o.rope_theta, "options.rope_theta");
  a.deviation = deviation_of(o.initializer_range);
  return a;
}

}  // namespace

void gw_decoder_options_init(gw_decoder_options* options, size_t size) {
  init_struct(options, size, raw_options_of({}));
}

gw_status gw_decoder_options_from_family(const char* family, gw_decoder_options* options) {
  return guarded([&] {
    check_out_struct(options, "options");
    write_struct(options, raw_options_of(family_named(&required(family, "family")).options));
  });
}

gw_status gw_decoder_create(const gw_decoder_options* options, gw_module** out_model) {
  return guarded([&] {
    gw_module*& result = out(out_model, "out_model");
    const DecoderOptions decoder =
        decoder_options_of(read_struct(options, gw_decoder_options_init, "options"));
    check_expressible(decoder);
    result = new gw_module(make_decoder(decoder));
  });
}

gw_status gw_decoder_options_from_folder(const char* folder, gw_decoder_options* options) {
  return guarded([&] {
    check_out_struct(options, "options");
    write_struct(options, raw_options_of(decoder_options_of_folder(&required(folder, "folder"))));
  });
}

gw_status gw_linear_create(int64_t input_dim, int64_t output_dim, int32_t bias, gw_module** out_model) {
  return guarded([&] {
    gw_module*& result = out(out_model, "out_model");
    if (bias < 0 || bias > 2)
      fail(Code::invalid_argument, "bias is ", bias, "; 0: none, 1: added, 2: handed out, not added");
    result = new gw_module(bias == 2 ? make_linear_skip_bias_add(input_dim, output_dim)
                                     : make_linear(input_dim, output_dim, bias != 0));
  });
}

gw_status gw_embedding_create(int64_t rows, int64_t dim, gw_module** out_model) {
  return guarded([&] {
    gw_module*& result = out(out_model, "out_model");
    result = new gw_module(make_embedding(rows, dim));
  });
}

gw_status gw_rmsnorm_create(int64_t dim, double eps, gw_module** out_model) {
  return guarded([&] {
    gw_module*& result = out(out_model, "out_model");
    result = new gw_module(make_rmsnorm(dim, finite(eps, "eps")));
  });
}

gw_status gw_layernorm_create(int64_t dim, double eps, gw_module** out_model) {
  return guarded([&] {
    gw_module*& result = out(out_model, "out_model");
    result = new gw_module(make_layernorm(dim, finite(eps, "eps")));
  });
}

void gw_attention_options_init(gw_attention_options* options, size_t size) {
  const AttentionOptions a;
  gw_attention_options d{};
  d.rope_theta = a.rope.theta;
  d.initializer_range = a.deviation;
  d.eps = a.eps;
  d.causal = 1;
  init_struct(options, size, d);
}

gw_status gw_attention_create(const gw_attention_options* options, gw_module** out_model) {
  return guarded([&] {
    gw_module*& result = out(out_model, "out_model");
    result = new gw_module(make_attention(attention_of(options, "options")));
  });
}

gw_status gw_mlp_create(int64_t dim, int64_t ffn, int32_t bias, gw_module** out_model) {
  return guarded([&] {
    gw_module*& result = out(out_model, "out_model");
    result = new gw_module(make_mlp(dim, ffn, bias != 0));
  });
}

void gw_feed_forward_options_init(gw_feed_forward_options* options, size_t size) {
  gw_feed_forward_options d{};
  d.initializer_range = AttentionOptions().deviation;
  init_struct(options, size, d);
}

gw_status gw_feed_forward_create(const gw_feed_forward_options* options, gw_module** out_model) {
  return guarded([&] {
    gw_module*& result = out(out_model, "out_model");
    const gw_feed_forward_options o =
        read_struct(&required(options, "options"), gw_feed_forward_options_init, "options");
    const double deviation = deviation_of(o.initializer_range);
    const auto activation = enum_of<Activation>(o.activation, GW_ACTIVATION_TANH, "options.activation");
    result = new gw_module(o.plain != 0 ? make_plain_mlp(o.dim, o.ffn, o.bias != 0, activation, deviation)
                                        : make_mlp(o.dim, o.ffn, o.bias != 0, deviation, activation));
  });
}

gw_status gw_activation_create(gw_activation activation, gw_module** out_model) {
  return guarded([&] {
    gw_module*& result = out(out_model, "out_model");
    result =
        new gw_module(make_activation(enum_of<Activation>(activation, GW_ACTIVATION_TANH, "activation")));
  });
}

gw_status gw_dropout_create(double probability, gw_module** out_model) {
  return guarded([&] {
    gw_module*& result = out(out_model, "out_model");
    result = new gw_module(make_dropout(finite(probability, "probability")));
  });
}

gw_status gw_block_create(const gw_attention_options* attention, int64_t ffn, double eps,
                          gw_module** out_model) {
  return guarded([&] {
    gw_module*& result = out(out_model, "out_model");
    BlockOptions block{attention_of(attention, "attention"), ffn};
    block.eps = finite(eps, "eps");
    result = new gw_module(make_block(block));
  });
}

gw_status gw_sequential_create(gw_module* const* models, size_t model_count, gw_module** out_model) {
  return guarded([&] {
    gw_module*& result = out(out_model, "out_model");
    if (model_count == 0) fail(Code::invalid_argument, "a sequential of 0 modules");
    required(models, "models");
    std::vector<ModulePtr> all;
    for (size_t i = 0; i < model_count; ++i) {
      const std::string name = text("models[", i, "]");
      all.push_back(required(models[i], name.c_str()).part(name));
      check_once(all, name);
    }
    result = new gw_module(make_sequential(std::move(all)));
    result->takes({models, model_count});
  });
}

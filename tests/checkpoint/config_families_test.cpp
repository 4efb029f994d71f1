// What the files of each family may not say, and the rotary angles that they say.
#include <gtest/gtest.h>

#include <cmath>

#include "base/error_of.h"
#include "checkpoint/config_json.h"
#include "families/family.h"
#include "nn/rope_table.h"

namespace gangway::test {
namespace {

struct Refusal {
  const char *family, *keys;
  std::vector<const char*> words;  // of the text: key and value
};

// Each changes what transformers computes, or may do so.
const Refusal kRefusals[] = {
    {"llama", R"("attention_multiplier": 0.5)", {"attention_multiplier", "0.5"}},
    {"llama", R"("attention_dropout": 0.1)", {"attention_dropout", "0.1"}},
    {"llama", R"("rope_scaling": {"rope_type": "dynamic", "factor": 2})", {"rope_type", "dynamic"}},
    {"mistral", R"("num_local_experts": 8)", {"num_local_experts", "8"}},
    {"mistral", R"("logit_scale": 0.25)", {"logit_scale", "0.25"}},
    {"qwen2", R"("use_qk_norm": true)", {"use_qk_norm", "true"}},
    {"qwen2", R"("rope_parameters": {"rope_type": "default", "mrope_section": [1]})", {"mrope_section"}},
    {"qwen3", R"("decoder_sparse_step": 1)", {"decoder_sparse_step", "1"}},
    {"qwen3", R"("quantization_config": {"bits": 4})", {"quantization_config", "an object"}},
    {"gemma", R"("hidden_act": "relu")", {"hidden_act", "relu"}},
    {"gemma", R"("use_bidirectional_attention": true)", {"use_bidirectional_attention", "true"}},
    {"gemma2", R"("hidden_activation": "silu")", {"hidden_activation", "silu"}},
    {"gemma2", R"("residual_multiplier": 2)", {"residual_multiplier", "2"}},
    {"gemma3_text", R"("use_bidirectional_attention": true)", {"use_bidirectional_attention", "true"}},
    {"gemma3_text", R"("altup_num_inputs": 4)", {"altup_num_inputs", "4"}},
    {"olmo2", R"("clip_qkv": 8)", {"clip_qkv", "8"}},
    {"olmo2", R"("partial_rotary_factor": 0.5)", {"partial_rotary_factor", "0.5"}},
    {"gpt2", R"("scale_attn_by_inverse_layer_idx": true)", {"scale_attn_by_inverse_layer_idx", "true"}},
    {"gpt2", R"("scale_attn_weights": false)", {"scale_attn_weights", "false"}},
    {"gpt2", R"("activation_function": "relu")", {"activation_function", "relu"}},
    {"gpt2", R"("rope_theta": 10000)", {"rope_theta", "10000"}},
    {"gpt2", R"("hidden_size": 768)", {"hidden_size", "768"}},
    {"phi3", R"("rope_scaling": {"type": "yarn", "factor": 2})", {"type", "yarn"}},
    {"phi3", R"("resid_pdrop": 0.1)", {"resid_pdrop", "0.1"}},
    {"phi3", R"("lm_head_bias": true)", {"lm_head_bias", "true"}},
};

std::string config_of(const char* family, const std::string& keys) {
  return text(R"({"model_type": ")", family, R"(", )", keys, "}");
}

TEST(ConfigFamilies, AKeyThatChangesTheMathematicsIsRefusedWithItsValue) {
  std::set<std::string> seen;
  for (const Refusal& row : kRefusals) {
    seen.insert(row.family);
    const std::string json = config_of(row.family, row.keys);
    const Error error = error_of([&] { parse_config_json(json, "c"); });
    EXPECT_EQ(error.code(), Code::not_supported) << json << ": " << error.message();
    for (const char* word : row.words)
      EXPECT_NE(error.message().find(word), std::string::npos) << error.message();
  }
  for (const Family& family : families()) EXPECT_TRUE(seen.contains(family.name)) << family.name;
}

TEST(ConfigFamilies, DropoutsOfGpt2AreReadWrittenAndOfTheClassIfMissing) {
  const DecoderOptions given =
      parse_config_json(config_of("gpt2", R"("embd_pdrop": 0.25, "resid_pdrop": 0, "attn_pdrop": 0.5)"), "c");
  EXPECT_EQ(given.embedding_dropout, 0.25);
  EXPECT_EQ(given.residual_dropout, 0);
  EXPECT_EQ(given.attention_dropout, 0.5);
  const DecoderOptions again = parse_config_json(config_json(given, DType::f32), "c");
  EXPECT_EQ(again.embedding_dropout, 0.25);
  EXPECT_EQ(again.residual_dropout, 0);
  EXPECT_EQ(again.attention_dropout, 0.5);
  const DecoderOptions missing = parse_config_json(config_of("gpt2", R"("n_ctx": 1024)"), "c");
  EXPECT_EQ(missing.embedding_dropout, 0.1);
  EXPECT_EQ(missing.residual_dropout, 0.1);
  EXPECT_EQ(missing.attention_dropout, 0.1);
  EXPECT_NO_THROW(check_same_function(missing, given, "c")) << "dropouts are options of training";
}

TEST(ConfigFamilies, PublishedConfigurationsOfGpt2AndPhi3AreRead) {
  const DecoderOptions gpt2 = parse_config_json(
      R"({"activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0,
          "bos_token_id": 50256, "embd_pdrop": 0.0, "eos_token_id": 50256, "initializer_range": 0.02,
          "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768, "n_head": 12,
          "n_layer": 12, "n_positions": 1024, "resid_pdrop": 0, "summary_activation": null,
          "summary_first_dropout": 0.1, "summary_proj_to_labels": true, "summary_type": "cls_index",
          "summary_use_proj": true, "task_specific_params": {"text-generation": {"max_length": 50}},
          "vocab_size": 50257})",
      "c");
  EXPECT_EQ(gpt2.ffn, 3072);
  EXPECT_EQ(gpt2.head_dim, 64);
  EXPECT_TRUE(gpt2.tied && gpt2.layer_norm && gpt2.learned_positions && gpt2.qkv_bias && !gpt2.gated_mlp);
  EXPECT_EQ(gpt2.embedding_dropout + gpt2.residual_dropout + gpt2.attention_dropout, 0);
  EXPECT_NO_THROW(check_expressible(gpt2));
  std::string factors = "1.0";
  for (int i = 1; i < 48; ++i) factors += ", 1.25";
  const DecoderOptions phi4 = parse_config_json(
      text(R"({"model_type": "phi3", "attention_bias": false, "auto_map": {"AutoConfig": "x"},
               "full_attn_mod": 1, "hidden_size": 3072, "interpolate_factor": 1, "intermediate_size": 8192,
               "lm_head_bias": false, "max_position_embeddings": 131072, "mlp_bias": false,
               "num_attention_heads": 24, "num_hidden_layers": 32, "num_key_value_heads": 8,
               "original_max_position_embeddings": 4096, "partial_rotary_factor": 0.75,
               "rope_scaling": {"type": "longrope", "long_factor": [)",
           factors, R"(], "short_factor": [)", factors,
           R"(]}, "rope_theta": 10000.0, "sliding_window": 262144, "tie_word_embeddings": true,
               "vocab_size": 200064})"),
      "c");
  EXPECT_EQ(phi4.rope.partial, 0.75);
  EXPECT_EQ(phi4.rope.factor, 32);
  EXPECT_EQ(phi4.rope.original_positions, 4096);
  ASSERT_EQ(phi4.rope.long_factors.size(), 48u);
  EXPECT_EQ(phi4.rope.long_factors[47], 1.25);
  EXPECT_DOUBLE_EQ(rope_attention_factor(phi4.rope), std::sqrt(1 + std::log(32.0) / std::log(4096.0)));
}

// The least that is taken, with further keys.
std::string least_of(const std::string& family, const std::string& rest) {
  const char* sizes = family == "gpt2" ? R"("n_embd": 24, "n_layer": 2, "n_head": 4)"
                                       : R"("hidden_size": 24, "num_hidden_layers": 2,
    "num_attention_heads": 4, "intermediate_size": 40, "max_position_embeddings": 64)";
  return text(R"({"model_type": ")", family, R"(", "vocab_size": 9, )", sizes, rest, "}");
}

// As published: with SmolLM2-Instruct, gpt2-medium, gpt2-xl, distilgpt2, vicuna, Yarn-Llama, and as scripts
// write them.
TEST(ConfigFamilies, KeysOfPublishedFilesThatNoClassReadsAreKept) {
  const std::pair<const char*, const char*> published[] = {
      {"llama", R"("transformers.js_config": {"kv_cache_dtype": {"fp16": "float16"}})"},
      {"llama", R"("max_sequence_length": 2048)"},
      {"llama", R"("num_labels": 2)"},
      {"llama", R"("max_new_tokens": 256)"},
      {"llama", R"("cache_implementation": "hybrid")"},
      {"llama", R"("model_max_length": 4096)"},
      {"llama", R"("padding_side": "left")"},
      {"llama", R"("auto_map": {"AutoModel": "mine.py"})"},
      {"llama", R"("rope_scaling": {"factor": 4.0, "finetuned": true,
                   "original_max_position_embeddings": 64, "type": "yarn"})"},
      {"mistral", R"("pretraining_tp": 1)"},
      {"gpt2", R"("n_special": 0)"},
      {"gpt2", R"("predict_special_tokens": true)"},
      {"gpt2", R"("output_past": true)"},
      {"gpt2", R"("_num_labels": 1)"},
      {"gpt2", R"("gradient_checkpointing": false)"},
  };
  for (const auto& [family, key] : published) {
    const std::string origin = least_of(family, text(", ", key));
    const DecoderOptions options = parse_config_json(origin, "c");
    const std::string saved = config_json(options, DType::f32, origin);
    EXPECT_NE(saved.find(key), std::string::npos) << saved;
  }
}

// A class of transformers could not be made with a pad_token_id of its own that is outside of the vocabulary,
// or would stop at an id that no token has.
TEST(ConfigFamilies, OfAModelFromOptionsSaysNullForAnIdThatTheVocabularyDoesNotHave) {
  const auto written = [](const char* family, int64_t vocab) {
    DecoderOptions options = parse_config_json(least_of(family, ""), "c");
    options.vocab = vocab;
    return config_json(options, DType::f32, "");
  };
  struct Row {
    const char* family;
    int64_t vocab;
    const char *nulls, *others;
  };
  for (const Row& row :
       {Row{"phi3", 32000, "pe", "b"}, Row{"phi3", 32001, "", "bep"}, Row{"olmo2", 64, "e", "bp"},
        Row{"olmo2", 1, "ep", "b"}, Row{"gpt2", 64, "be", "p"}, Row{"gpt2", 50257, "", "bep"},
        Row{"llama", 64, "", "bep"}, Row{"llama", 2, "e", "bp"}, Row{"gemma", 64, "", "bep"}}) {
    const std::string json = written(row.family, row.vocab);
    for (const char* letters : {row.nulls, row.others})
      for (const char* letter = letters; *letter != 0; ++letter) {
        const char* key = *letter == 'b' ? "bos" : *letter == 'e' ? "eos" : "pad";
        EXPECT_EQ(json.find(text('"', key, "_token_id\": null")) != std::string::npos, letters == row.nulls)
            << row.family << " with " << row.vocab << " ids, " << key;
      }
  }
  DecoderOptions options = parse_config_json(least_of("phi3", ""), "c");
  const std::string loaded = config_json(options, DType::f32, least_of("phi3", R"(, "pad_token_id": 3)"));
  EXPECT_NE(loaded.find(R"("pad_token_id": 3)"), std::string::npos) << loaded;
  EXPECT_EQ(loaded.find(R"("pad_token_id": null)"), std::string::npos) << loaded;
}

const char* const kScalings[] = {
    R"("rope_scaling": {"rope_type": "linear", "factor": 4.0}, "rope_theta": 500.0)",
    R"("rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
       "original_max_position_embeddings": 32})",
    R"("rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768})",
    R"("rope_parameters": {"rope_type": "yarn", "rope_theta": 1500.0, "factor": 4.0, "truncate": false,
       "original_max_position_embeddings": 16, "beta_fast": 1.5, "beta_slow": 0.25, "attention_factor": 1.5})",
    R"("rope_scaling": {"rope_type": "yarn", "factor": 40, "original_max_position_embeddings": 4096,
       "mscale": 0.707, "mscale_all_dim": 1.0})",
    R"("head_dim": 6, "rope_scaling": {"rope_type": "longrope", "factor": 4.0, "short_factor": [1.0, 1.1, 1.25],
       "long_factor": [1, 2, 5.5], "original_max_position_embeddings": 16})",
};

TEST(ConfigFamilies, RotaryScalingsAreReadAndWrittenAgain) {
  for (const char* keys : kScalings) {
    const std::string json = config_of("llama", keys);
    const DecoderOptions options = parse_config_json(json, "c");
    EXPECT_GT(options.rope.factor, 1) << json;
    const std::string alone = config_json(options, DType::f32),
                      again = config_json(options, DType::f32, json);
    for (const std::string& written : {alone, again}) {
      EXPECT_EQ(parse_config_json(written, "c").rope, options.rope) << written;
      EXPECT_NO_THROW(check_same_function(parse_config_json(written, "c"), options, "c"));
    }
    DecoderOptions other = options;
    other.rope.factor *= 2;
    const Error error = error_of([&] { check_same_function(options, other, "c"); });
    EXPECT_EQ(error.code(), Code::invalid_argument);
    EXPECT_NE(error.message().find("the factor of rope_scaling"), std::string::npos) << error.message();
  }
}

TEST(ConfigFamilies, WrongRotaryScalingsAreRefused) {
  const struct {
    const char *keys, *text;
  } table[] = {
      {R"("rope_scaling": {"rope_type": "linear"})", "rope_scaling.factor is missing"},
      {R"("rope_scaling": {"rope_type": "linear", "factor": 0.5})", "rope_scaling.factor is 0.5, below 1"},
      {R"("rope_scaling": {"rope_type": "yarn", "factor": "4"})", "rope_scaling.factor is \"4\""},
      {R"("head_dim": 6, "rope_scaling": {"rope_type": "longrope", "long_factor": [1, 2, 3]})",
       "rope_scaling.short_factor is missing"},
      {R"("head_dim": 6, "rope_scaling": {"rope_type": "longrope", "short_factor": [1, 2], "long_factor": [1, 2, 3]})",
       "rope_scaling.short_factor is a list, not a number for each of 3 pairs"},
      {R"("head_dim": 4, "rope_scaling": {"rope_type": "longrope", "short_factor": [1, "2"], "long_factor": [1, 2]})",
       "rope_scaling.short_factor is a list, not a number for each of 2 pairs"},
      {R"("head_dim": 4, "rope_scaling": {"rope_type": "longrope", "short_factor": [1, 0], "long_factor": [1, 2]})",
       "one number is 0, not above 0"},
  };
  for (const auto& row : table) {
    const Error error = error_of([&] { parse_config_json(config_of("llama", row.keys), "c"); });
    EXPECT_EQ(error.code(), Code::corrupt) << error.message();
    EXPECT_NE(error.message().find(row.text), std::string::npos) << error.message();
  }
}

}  // namespace
}  // namespace gangway::test

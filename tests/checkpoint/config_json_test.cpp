// The config.json of a decoder: what Hugging Face's published files say, what is refused, hostile bytes.
#include "checkpoint/config_json.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "families/family.h"

namespace gangway {
namespace {

// As published with Llama-3.1-8B.
constexpr char kLlama[] = R"({
  "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
  "bos_token_id": 128000, "eos_token_id": [128001, 128008], "hidden_act": "silu", "hidden_size": 4096,
  "initializer_range": 0.02, "intermediate_size": 14336, "max_position_embeddings": 131072, "mlp_bias": false,
  "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
  "pretraining_tp": 1, "rms_norm_eps": 1e-05,
  "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                   "original_max_position_embeddings": 8192, "rope_type": "llama3"},
  "rope_theta": 500000.0, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
  "transformers_version": "4.43.0.dev0", "use_cache": true, "vocab_size": 128256})";

// As published with Qwen2.5-0.5B.
constexpr char kQwen[] = R"({
  "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643, "eos_token_id": 151643,
  "hidden_act": "silu", "hidden_size": 896, "initializer_range": 0.02, "intermediate_size": 4864,
  "max_position_embeddings": 32768, "max_window_layers": 24, "model_type": "qwen2", "num_attention_heads": 14,
  "num_hidden_layers": 24, "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
  "sliding_window": 32768, "tie_word_embeddings": true, "torch_dtype": "bfloat16", "use_cache": true,
  "use_mrope": false, "use_sliding_window": false, "vocab_size": 151936})";

// The smallest that is taken.
constexpr char kLeast[] =
    R"({"model_type": "llama", "vocab_size": 9, "hidden_size": 24, "num_hidden_layers": 2,
  "num_attention_heads": 4, "intermediate_size": 40})";

std::string with(const std::string& field) {
  const std::string least = kLeast;
  return text(least.substr(0, least.size() - 1), ", ", field, "}");
}

Error error_of(const std::string& json) {
  try {
    parse_config_json(json, "config.json");
    return Error(Code::ok, "");
  } catch (const Error& error) {
    return error;
  }
}

TEST(ConfigJson, ReadsEachFieldOfPublishedFiles) {
  const DecoderOptions llama = parse_config_json(kLlama, "config.json");
  EXPECT_EQ(llama.vocab, 128256);
  EXPECT_EQ(llama.dim, 4096);
  EXPECT_EQ(llama.layers, 32);
  EXPECT_EQ(llama.heads, 32);
  EXPECT_EQ(llama.kv_heads, 8);
  EXPECT_EQ(llama.head_dim, 128);
  EXPECT_EQ(llama.ffn, 14336);
  EXPECT_EQ(llama.max_positions, 131072);
  EXPECT_EQ(llama.eps, 1e-5);
  EXPECT_EQ(llama.rope.theta, 500000);
  EXPECT_EQ(llama.rope.factor, 8);
  EXPECT_EQ(llama.rope.low_frequency_factor, 1);
  EXPECT_EQ(llama.rope.high_frequency_factor, 4);
  EXPECT_EQ(llama.rope.original_positions, 8192);
  EXPECT_EQ(llama.deviation, 0.02);
  EXPECT_FALSE(llama.tied || llama.qkv_bias || llama.out_bias || llama.mlp_bias);
  const DecoderOptions qwen = parse_config_json(kQwen, "config.json");
  EXPECT_TRUE(qwen.qkv_bias && qwen.tied);
  EXPECT_FALSE(qwen.out_bias || qwen.mlp_bias);
  EXPECT_EQ(qwen.head_dim, 64);
  EXPECT_EQ(qwen.kv_heads, 2);
  EXPECT_EQ(qwen.eps, 1e-6);
  EXPECT_EQ(qwen.rope.theta, 1e6);
  EXPECT_EQ(qwen.rope.factor, 1);
}

TEST(ConfigJson, WhatIsMissingIsAsInTheClassOfTransformers) {
  const DecoderOptions least = parse_config_json(kLeast, "config.json");
  EXPECT_EQ(least.kv_heads, 4);
  EXPECT_EQ(least.head_dim, 6);
  EXPECT_EQ(least.max_positions, 2048);
  EXPECT_EQ(least.eps, 1e-6);
  EXPECT_EQ(least.rope.theta, 10000);
  EXPECT_EQ(least.rope.factor, 1);
  EXPECT_EQ(least.deviation, 0.02);
  const DecoderOptions nulls =
      parse_config_json(with(R"("num_key_value_heads": null, "head_dim": null, "rope_scaling": null)"), "c");
  EXPECT_EQ(nulls.kv_heads, 4);
  EXPECT_EQ(nulls.head_dim, 6);
  const DecoderOptions biased = parse_config_json(with(R"("attention_bias": true, "mlp_bias": true)"), "c");
  EXPECT_TRUE(biased.qkv_bias && biased.out_bias && biased.mlp_bias);
}

TEST(ConfigJson, ReadsTheFormOfTransformers5) {
  const DecoderOptions plain = parse_config_json(
      with(R"("rope_parameters": {"rope_theta": 20000.0, "rope_type": "default"}, "dtype": "bfloat16")"),
      "c");
  EXPECT_EQ(plain.rope.theta, 20000);
  EXPECT_EQ(plain.rope.factor, 1);
  const DecoderOptions scaled = parse_config_json(
      with(R"("rope_parameters": {"rope_theta": 5e5, "rope_type": "llama3", "factor": 2, "low_freq_factor": 1,
              "high_freq_factor": 3, "original_max_position_embeddings": 64})"),
      "c");
  EXPECT_EQ(scaled.rope.theta, 5e5);
  EXPECT_EQ(scaled.rope.factor, 2);
  EXPECT_EQ(scaled.rope.high_frequency_factor, 3);
  EXPECT_EQ(scaled.rope.original_positions, 64);
}

TEST(ConfigJson, ReadsWhatItWrites) {
  DecoderOptions config = parse_config_json(kLlama, "c");
  for (int bits = 0; bits < 16; ++bits) {
    config.qkv_bias = (bits & 1) != 0;
    config.out_bias = (bits & 3) == 3;  // alone it cannot be saved
    config.mlp_bias = (bits & 4) != 0;
    config.tied = (bits & 8) != 0;
    config.rope.factor = bits % 3 + 1;
    config.eps = 1.0 / (3 + bits);
    EXPECT_NO_THROW(
        check_same_function(parse_config_json(config_json(config, DType::bf16), "c"), config, "c"))
        << bits;
  }
}

// The keys of one family as transformers 4 writes them.
std::string of_family(const char* family, const std::string& rest) {
  return text(R"({"model_type": ")", family, R"(", "vocab_size": 9, "hidden_size": 24, "num_hidden_layers": 2,
    "num_attention_heads": 4, "intermediate_size": 40, "max_position_embeddings": 64)",
              rest, "}");
}

TEST(ConfigJson, AFamilyIsWrittenAsItWasRead) {
  struct Row {
    const char* family;
    std::string rest;
    std::string architecture, written;
  };
  const Row table[] = {
      {"llama", R"(, "attention_bias": true)", "LlamaForCausalLM", R"("attention_bias": true)"},
      {"mistral", R"(, "sliding_window": null)", "MistralForCausalLM", R"("sliding_window": null)"},
      {"mistral", R"(, "sliding_window": 64)", "MistralForCausalLM", R"("sliding_window": 64)"},
      {"qwen2", R"(, "use_sliding_window": false, "sliding_window": 4)", "Qwen2ForCausalLM",
       R"("use_sliding_window": false)"},
      {"qwen2", R"(, "use_sliding_window": true, "sliding_window": 64, "max_window_layers": 0)",
       "Qwen2ForCausalLM", R"("use_sliding_window": true)"},
  };
  for (const Row& row : table) {
    const DecoderOptions options = parse_config_json(of_family(row.family, row.rest), "c");
    EXPECT_EQ(options.family, row.family);
    const std::string json = config_json(options, DType::f32);
    EXPECT_NE(json.find(text("\"model_type\": \"", row.family, "\"")), std::string::npos) << json;
    EXPECT_NE(json.find(row.architecture), std::string::npos) << json;
    EXPECT_NE(json.find(row.written), std::string::npos) << json;
    EXPECT_EQ(config_json(parse_config_json(json, "c"), DType::f32), json);
  }
}

// What each class of transformers 4.57 and 5.0 makes of a model of 2 layers. -1: it cannot work with the
// file.
TEST(ConfigJson, AWindowIsThatOfTheClassOfTransformers) {
  const std::string on = R"(, "use_sliding_window": true)", eight = R"(, "sliding_window": 8)";
  struct Row {
    const char* families;
    std::string rest;
    int64_t window;
  };
  const Row table[] = {
      {"llama", "", 0},
      {"llama", eight, 0},
      {"llama", on + eight + R"(, "max_window_layers": 0, "layer_types": ["x"])", 0},
      {"mistral", "", 4096},
      {"mistral", R"(, "sliding_window": null)", 0},
      {"mistral", eight, 8},
      {"mistral", eight + R"(, "use_sliding_window": false, "max_window_layers": 9)", 8},
      {"mistral", R"(, "sliding_window": 0)", -1},
      {"mistral", R"(, "sliding_window": "8")", -1},
      {"qwen2 qwen3", "", 0},
      {"qwen2 qwen3", eight + R"(, "max_window_layers": 1)", 0},
      {"qwen2 qwen3", R"(, "use_sliding_window": null, "max_window_layers": 1)" + eight, 0},
      {"qwen2 qwen3", R"(, "use_sliding_window": false, "max_window_layers": null)" + eight, 0},
      {"qwen2 qwen3", on + eight, 0},  // max_window_layers is 28
      {"qwen2 qwen3", on + eight + R"(, "max_window_layers": 2)", 0},
      {"qwen2 qwen3", on + eight + R"(, "max_window_layers": 1)", 8},
      {"qwen2 qwen3", on + eight + R"(, "max_window_layers": null)", -1},
      {"qwen2 qwen3", on + R"(, "max_window_layers": 0)", 4096},
      {"qwen2 qwen3", on + R"(, "max_window_layers": 0, "sliding_window": null)", 0},
      {"qwen2 qwen3", on + eight + R"(, "layer_types": ["full_attention", "sliding_attention"])", 8},
      {"qwen2 qwen3",
       on + eight + R"(, "max_window_layers": 0, "layer_types": ["full_attention", "full_attention"])", 0},
      {"qwen2 qwen3", on + eight + R"(, "layer_types": null, "max_window_layers": 0)", 8},
      {"qwen2 qwen3", on + eight + R"(, "layer_types": ["sliding_attention"])", -1},
      {"qwen2 qwen3", on + eight + R"(, "layer_types": ["full_attention", "chunked_attention"])", -1},
      {"qwen2 qwen3", on + eight + R"(, "layer_types": ["full_attention", ["sliding_attention"]])", -1},
      {"qwen2 qwen3", eight + R"(, "layer_types": ["full_attention", "sliding_attention"])", -1},
  };
  for (const Row& row : table) {
    std::istringstream families(row.families);
    for (std::string family; families >> family;) {
      const std::string json = of_family(family.c_str(), row.rest);
      const Error error = error_of(json);
      if (row.window < 0)
        EXPECT_TRUE(error.code() == Code::corrupt || error.code() == Code::not_supported) << json;
      else
        EXPECT_EQ(error.code() == Code::ok ? parse_config_json(json, "c").window : -1, row.window)
            << json << ": " << error.message();
    }
  }
}

TEST(ConfigJson, AWindowIsWrittenForTheLayersThatHaveIt) {
  DecoderOptions options = parse_config_json(
      of_family("qwen2", R"(, "use_sliding_window": true, "sliding_window": 8, "max_window_layers": 0)"),
      "c");
  options.layers = 40;
  EXPECT_EQ(parse_config_json(config_json(options, DType::f32), "c").window, 8)
      << "in all layers, not from 28 on";
  const std::string origin = of_family(
      "qwen2", R"(, "use_sliding_window": true, "sliding_window": 8, "layer_types": ["full_attention",
                  "sliding_attention"], "max_window_layers": 5)");
  const std::string again = config_json(parse_config_json(origin, "c"), DType::f32, origin);
  EXPECT_EQ(parse_config_json(again, "c").window, 8);
  for (const char* kept :
       {R"("max_window_layers": 5)", R"("use_sliding_window": true)", R"(["full_attention",)"})
    EXPECT_NE(again.find(kept), std::string::npos) << again;
}

// A letter for each of 7 layers: w has the window, f has not. Empty: the file is refused.
TEST(ConfigJson, LayersHaveTheWindowThatTheClassOfTransformersGivesThem) {
  const auto types = [](const std::string& letters) {
    std::string list;
    for (const char letter : letters)
      list += text(list.empty() ? "" : ", ", letter == 'w' ? "\"sliding_attention\"" : "\"full_attention\"");
    return text(", \"layer_types\": [", list, "]");
  };
  const std::string on = R"(, "use_sliding_window": true, "sliding_window": 8)";
  struct Row {
    const char* family;
    std::string rest, layers;
  };
  const Row table[] = {
      {"mistral", R"(, "sliding_window": 8)", "wwwwwww"},
      {"qwen2", on + R"(, "max_window_layers": 3)", "fffwwww"},
      {"qwen3", on + types("wfwwfff"), "wfwwfff"},
      {"gemma2", "", "wfwfwfw"},
      {"gemma2", types("fwfwfwf"), "fwfwfwf"},
      {"gemma2", types("fffffff") + R"(, "sliding_window": null)", "fffffff"},
      {"gemma2", types("fffffff"), "fffffff"},
      {"gemma2", R"(, "sliding_window": null)", ""},
      {"gemma2", types("wfwfwf"), ""},
      {"gemma3_text", "", "wwwwwfw"},
      {"gemma3_text", R"(, "sliding_window_pattern": 3)", "wwfwwfw"},
      {"gemma3_text", R"(, "sliding_window_pattern": 1)", "fffffff"},
      {"gemma3_text", R"(, "sliding_window_pattern": 3)" + types("wwwwwww"), "wwwwwww"},
      {"gemma3_text", R"(, "sliding_window_pattern": 0)", ""},
  };
  for (const Row& row : table) {
    std::string json = of_family(row.family, row.rest);
    json.replace(json.find(R"("num_hidden_layers": 2)"), 22, R"("num_hidden_layers": 7)");
    if (row.layers.empty()) {
      EXPECT_EQ(error_of(json).code(), Code::corrupt) << json;
      continue;
    }
    const DecoderOptions options = parse_config_json(json, "c");
    EXPECT_EQ(layers_with_window(options), row.layers) << json;
    for (const std::string& origin : {std::string(), json}) {
      const std::string again = config_json(options, DType::f32, origin);
      const DecoderOptions read = parse_config_json(again, "c");
      EXPECT_EQ(layers_with_window(read), row.layers) << again;
      EXPECT_EQ(config_json(read, DType::f32, origin), again);
    }
  }
}

TEST(ConfigJson, ReadsTheKeysOfGemma) {
  const DecoderOptions gemma = parse_config_json(of_family("gemma", R"(, "hidden_act": "gelu")"), "c");
  EXPECT_EQ(gemma.norm_offset, 1);
  EXPECT_EQ(gemma.embedding_scale, 0) << "the square root of the width";
  EXPECT_TRUE(gemma.tied);
  const DecoderOptions gemma2 = parse_config_json(
      of_family("gemma2", R"(, "query_pre_attn_scalar": 144, "attn_logit_softcapping": null)"), "c");
  EXPECT_EQ(gemma2.score_scale, 1.0 / 12);
  EXPECT_EQ(gemma2.score_cap, 0);
  EXPECT_EQ(gemma2.logit_cap, 30);
  EXPECT_EQ(gemma2.window, 4096);
  const std::string json = config_json(gemma2, DType::f32);
  for (const char* key : {R"("query_pre_attn_scalar": 144,)", R"("attn_logit_softcapping": null)",
                          R"("hidden_activation": "gelu_pytorch_tanh")"})
    EXPECT_NE(json.find(key), std::string::npos) << json;
  const DecoderOptions gemma3 = parse_config_json(
      of_family("gemma3_text",
                R"(, "rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8.0},
                    "sliding_attention": {"rope_type": "default", "rope_theta": 500.0}})"),
      "c");
  EXPECT_EQ(gemma3.rope.theta, 1e6);
  EXPECT_EQ(gemma3.rope.factor, 8);
  EXPECT_EQ(gemma3.window_rope_theta, 500);
  for (const char* wrong :
       {R"(, "query_pre_attn_scalar": 0)", R"(, "rope_local_base_freq": 0)", R"(, "rope_theta": null)"})
    EXPECT_EQ(error_of(of_family("gemma3_text", wrong)).code(), Code::corrupt) << wrong;
  for (const char* unknown :
       {R"(, "use_bidirectional_attention": true)", R"(, "hidden_activation": "gelu")",
        R"(, "rope_parameters": {"full_attention": {}, "sliding_attention": {"rope_type": "linear"}})",
        R"(, "rope_parameters": {"full_attention": {}, "sliding_attention": {"scale": 2}})",
        R"(, "rope_parameters": {"full_attention": {"mrope_section": 2}})"})
    EXPECT_EQ(error_of(of_family("gemma3_text", unknown)).code(), Code::not_supported) << unknown;
}

// The defaults of the classes of transformers 4.57 and 5.0.
TEST(ConfigJson, AFileWithoutKeysIsTheDefaultOfTheClass) {
  struct Row {
    const char* family;
    int64_t vocab, ffn, kv_heads, head_dim, max_positions, window;
    int64_t dim = 4096, layers = 32, heads = 32;
    double eps = 1e-6, theta = 10000;
    bool tied = false;
  };
  const Row table[] = {
      {"llama", 32000, 11008, 32, 128, 2048, 0},
      {"mistral", 32000, 14336, 8, 128, 131072, 4096},
      {"qwen2", 151936, 22016, 32, 128, 32768, 0},
      {"qwen3", 151936, 22016, 32, 128, 32768, 0},
      {"gemma", 256000, 24576, 16, 256, 8192, 0, 3072, 28, 16, 1e-6, 10000, true},
      {"gemma2", 256000, 9216, 4, 256, 8192, 4096, 2304, 26, 8, 1e-6, 10000, true},
      {"gemma3_text", 262208, 9216, 4, 256, 131072, 4096, 2304, 26, 8, 1e-6, 1e6, true},
      {"olmo2", 50304, 11008, 32, 128, 2048, 0, 4096, 32, 32, 1e-5},
  };
  for (const Row& row : table) {
    const DecoderOptions o = parse_config_json(text(R"({"model_type": ")", row.family, "\"}"), "c");
    EXPECT_EQ(o.dim, row.dim) << row.family;
    EXPECT_EQ(o.layers, row.layers) << row.family;
    EXPECT_EQ(o.heads, row.heads) << row.family;
    EXPECT_EQ(
        std::vector<int64_t>({o.vocab, o.ffn, o.kv_heads, o.head_dim, o.max_positions, o.window}),
        std::vector<int64_t>({row.vocab, row.ffn, row.kv_heads, row.head_dim, row.max_positions, row.window}))
        << row.family;
    EXPECT_EQ(o.eps, row.eps) << row.family;
    EXPECT_EQ(o.rope.theta, row.theta) << row.family;
    EXPECT_EQ(o.tied, row.tied) << row.family;
    EXPECT_FALSE(o.mlp_bias || o.out_bias) << row.family;
  }
}

TEST(ConfigJson, NullIsWhatTheClassOfTransformersMakesOfIt) {
  const auto read = [](const char* family, const char* key) {
    return parse_config_json(
        text(R"({"model_type": ")", family, R"(", "hidden_size": 640, ")", key, "\": null}"), "config.json");
  };
  for (const char* family : {"llama", "mistral", "qwen2", "qwen3"}) {
    EXPECT_EQ(read(family, "num_key_value_heads").kv_heads, 32) << family;
    EXPECT_EQ(read(family, "initializer_range").deviation, 0.02) << family;
    EXPECT_FALSE(read(family, "tie_word_embeddings").tied) << family;
    for (const char* key : {"attention_bias", "mlp_bias", "rope_scaling", "quantization_config", "use_cache"})
      EXPECT_FALSE(read(family, key).out_bias) << family;
    for (const char* key : {"vocab_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
                            "max_position_embeddings", "rms_norm_eps", "rope_theta", "hidden_act"}) {
      const Error error = error_of(text(R"({"model_type": ")", family, R"(", ")", key, "\": null}"));
      EXPECT_EQ(error.code(), Code::corrupt) << family << " " << key;
      EXPECT_NE(error.message().find(text(key, " is null")), std::string::npos) << error.message();
    }
  }
  EXPECT_EQ(read("llama", "head_dim").head_dim, 20);
  EXPECT_EQ(read("mistral", "head_dim").head_dim, 20);
  for (const char* family : {"qwen2", "qwen3"})
    EXPECT_EQ(error_of(text(R"({"model_type": ")", family, R"(", "head_dim": null})")).code(), Code::corrupt);
}

TEST(ConfigJson, KeepsTheKeysThatItDoesNotNeed) {
  const std::string kept =
      R"("eos_token_id": [39, 37], "my_own_field": {"a": [1, {"b": "}\" ,"}], "c": 1.50E+2},
    "id2label": {"0": "x"} , "pad_token_id": null, "tokenizer_class": "Fast", "pretraining_tp": 1,
    "transformers_version": "4.51.0", "Note": "ab\u00e9")";
  const std::string origin = with(kept);
  const DecoderOptions options = parse_config_json(origin, "c");
  const std::string json = config_json(options, DType::bf16, origin);
  for (const char* member :
       {R"("eos_token_id": [39, 37])", R"("my_own_field": {"a": [1, {"b": "}\" ,"}], "c": 1.50E+2})",
        R"("id2label": {"0": "x"})", R"("pad_token_id": null)", R"("tokenizer_class": "Fast")",
        R"("pretraining_tp": 1)", R"("transformers_version": "4.51.0")", R"("Note": "ab\u00e9")",
        R"("torch_dtype": "bfloat16")"})
    EXPECT_NE(json.find(member), std::string::npos) << member << " in " << json;
  EXPECT_NO_THROW(check_same_function(parse_config_json(json, "c"), options, "c"));
  EXPECT_EQ(config_json(options, DType::bf16, json), json) << "a second save changes nothing";
}

// A model of one family may be loaded from a folder of another that computes the same.
TEST(ConfigJson, KeepsNoKeyThatTheFamilyWouldRefuse) {
  const std::string origin =
      of_family("llama", R"(, "pretraining_tp": 1, "sliding_window": 8, "bos_token_id": 3)");
  DecoderOptions options = parse_config_json(origin, "c");
  options.family = "mistral";
  const std::string json = config_json(options, DType::f32, origin);
  EXPECT_EQ(error_of(json).code(), Code::ok) << json;
  EXPECT_EQ(parse_config_json(json, "c").window, 0) << json;
  EXPECT_NE(json.find(R"("bos_token_id": 3)"), std::string::npos) << json;
}

TEST(ConfigJson, ALlamaWithABiasOfOAloneIsNotWritten) {
  DecoderOptions options;
  options.out_bias = true;
  try {
    config_json(options, DType::f32);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_argument);
    EXPECT_NE(error.message().find("cannot be saved with out_bias but no qkv_bias"), std::string::npos)
        << error.message();
  }
  options.qkv_bias = true;
  EXPECT_NO_THROW(config_json(options, DType::f32));
}

TEST(ConfigJson, NothingStandsBehindAZeroByte) {
  const std::string least = kLeast, zero(1, '\0');
  for (const std::string& json : {least + zero, least + zero + least, zero + least, "{" + zero + "}"}) {
    const Error error = error_of(json);
    EXPECT_EQ(error.code(), Code::corrupt);
    EXPECT_NE(error.message().find("is not JSON at its byte "), std::string::npos) << error.message();
  }
  EXPECT_EQ(error_of("\xef\xbb\xbf" + least).code(), Code::corrupt) << "nor before the brace";
}

TEST(ConfigJson, RefusesWhatItHasNoFormOf) {
  struct Row {
    std::string json;
    Code code;
    const char* words;
  };
  const Row table[] = {
      {"", Code::corrupt, "config.json: it is not JSON"},
      {"[]", Code::corrupt, "config.json: it is no JSON object"},
      {"{}", Code::not_supported, "model_type is missing"},
      {R"({"model_type": "gpt5"})", Code::not_supported,
       "model_type is \"gpt5\"; this library has llama, qwen2"},
      {R"({"model_type": "llama", "vocab_size": 0})", Code::corrupt, "vocab_size is 0, outside of 1 to"},
      {with(R"("head_dim": 6.0)"), Code::corrupt, "head_dim is 6.0, not a whole number"},
      {with(R"("head_dim": 0)"), Code::corrupt, "head_dim is 0, outside of 1 to 2147483647"},
      {with(R"("max_position_embeddings": 99999999999)"), Code::corrupt, "outside of 1 to"},
      {with(R"("max_position_embeddings": 99999999999999999999999)"), Code::corrupt, "not a whole number"},
      {with(R"("rms_norm_eps": "1e-5")"), Code::corrupt, "rms_norm_eps is \"1e-5\", not a finite number"},
      {with(R"("rms_norm_eps": 1e999)"), Code::corrupt, "not JSON"},
      {with(R"("rope_theta": 0)"), Code::corrupt, "rope_theta is 0, not above 0"},
      {with(R"("tie_word_embeddings": 1)"), Code::corrupt, "tie_word_embeddings is 1, not true or false"},
      {with(R"("logit_scale": 0.5)"), Code::not_supported,
       "\"logit_scale\" is 0.5; this library does not know"},
      {with(R"("rope_scaling": {"rope_type": "default", "mrope_section": [1]})"), Code::not_supported,
       "rope_scaling.\"mrope_section\" is a list; this library does not know"},
      {R"({"model_type": "llama", "vocab_size": 9, "hidden_size": 24, "num_hidden_layers": 2,
           "num_attention_heads": 25, "intermediate_size": 40})",
       Code::corrupt, "hidden_size is 24, below num_attention_heads 25"},
      {with(R"("hidden_act": "gelu")"), Code::not_supported, "hidden_act is \"gelu\"; this library has silu"},
      {with(R"("attention_dropout": 0.1)"), Code::not_supported, "attention_dropout is 0.1"},
      {with(R"("quantization_config": {"bits": 4})"), Code::not_supported,
       "quantization_config is an object"},
      {with(R"("rope_scaling": 3)"), Code::corrupt, "rope_scaling is 3, not an object"},
      {with(R"("rope_scaling": {"type": "dynamic", "factor": 2})"), Code::not_supported,
       "rope_scaling.type is \"dynamic\"; this library has default, llama3, linear, yarn and longrope"},
      {with(R"("rope_scaling": {"rope_type": "llama3"})"), Code::corrupt, "rope_scaling.factor is missing"},
      {with(R"("rope_theta": 2, "rope_parameters": {"rope_theta": 3})"), Code::corrupt,
       "rope_parameters.rope_theta is 3, not the rope_theta of the whole"},
      {with(R"("head_dim": 6, "head_dim": 7)"), Code::corrupt, "\"head_dim\" stands there twice"},
      {R"({"model_type": "llama", "vocab_size": 9, "hidden_size": 24, "num_hidden_layers": 1000000000})",
       Code::corrupt, "num_hidden_layers is 1000000000, outside of 1 to 10000"},
      {R"({"model_type": "llama", "num_hidden_layers": 0})", Code::corrupt, "num_hidden_layers is 0"},
      {with(R"("x": [[[[[[[[[1]]]]]]]]])"), Code::corrupt, "nested over 8 deep"},
  };
  for (const Row& row : table) {
    const Error error = error_of(row.json);
    EXPECT_EQ(error.code(), row.code) << row.json << ": " << error.message();
    EXPECT_NE(error.message().find(row.words), std::string::npos) << row.json << ": " << error.message();
  }
  EXPECT_EQ(error_of(std::string(1 << 20, '[')).code(), Code::corrupt);
}

TEST(ConfigJson, EveryTruncationAndEverySingleByteChangeIsReadOrRefused) {
  const std::string json = kLlama;
  for (size_t length = 0; length < json.size(); ++length)
    EXPECT_EQ(error_of(json.substr(0, length)).code(), Code::corrupt) << length;
  for (size_t at = 0; at < json.size(); ++at)
    for (int value = 0; value < 256; value += 5) {
      std::string changed = json;
      changed[at] = static_cast<char>(value);
      const Code code = error_of(changed).code();
      EXPECT_TRUE(code == Code::ok || code == Code::corrupt || code == Code::not_supported)
          << at << " " << value;
    }
}

}  // namespace
}  // namespace gangway

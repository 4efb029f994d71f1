// The table of model families: what each one says of itself, and which options it refuses.
#include "families/family.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/error_of.h"

namespace gangway {
namespace {

TEST(Families, EachIsFoundByItsName) {
  for (const Family& family : families()) {
    EXPECT_EQ(&family_named(family.name), &family);
    EXPECT_EQ(family.options.family, family.name);
  }
}

TEST(Families, AnUnknownNameIsRefusedWithThoseThatThereAre) {
  const Error error = test::error_of([] { family_named("gpt5"); });
  EXPECT_EQ(error.code(), Code::not_supported);
  EXPECT_NE(error.message().find("\"gpt5\""), std::string::npos) << error.message();
  EXPECT_NE(error.message().find("llama, qwen2"), std::string::npos) << error.message();
}

TEST(Families, EachBuildsADecoderOfItsOwnName) {
  for (const Family& family : families()) {
    check_expressible(family.options);
    EXPECT_EQ(decoder_options(*make_decoder(family.options))->family, family.name);
  }
}

TEST(Families, NoKeyStandsTwice) {
  for (const Family& family : families()) {
    std::set<std::string> seen;
    for (const ConfigKey& key : family.keys) EXPECT_TRUE(seen.insert(key.name).second) << key.name;
    for (const FixedKey& key : family.fixed) EXPECT_TRUE(seen.insert(key.name).second) << key.name;
    for (const char* key : family.harmless) EXPECT_TRUE(seen.insert(key).second) << key;
  }
}

TEST(Families, AnOptionThatTheFamilysConfigCannotSayIsRefused) {
  DecoderOptions options = family_named("mistral").options;
  options.qkv_bias = true;
  const Error error = test::error_of([&] { check_expressible(options); });
  EXPECT_EQ(error.code(), Code::invalid_argument);
  EXPECT_NE(error.message().find("qkv_bias is 1, but in the family mistral it is always 0"),
            std::string::npos)
      << error.message();
}

TEST(Families, OnlyMaxPositionsLimitsTheLengthOfASequence) {
  DecoderOptions options = family_named("mistral").options;
  options.window = 9;
  EXPECT_NO_THROW(check_sequence_length(options, options.max_positions, "Decoder"));
  EXPECT_EQ(test::error_of([&] { check_sequence_length(options, options.max_positions + 1, "x"); }).code(),
            Code::invalid_argument);
}

TEST(Families, OptionsOutOfTheirRangesAreRefused) {
  DecoderOptions options;
  options.layers = 0;
  const Error none = test::error_of([&] { make_decoder(options); });
  EXPECT_EQ(none.code(), Code::invalid_argument);
  EXPECT_NE(none.message().find("layers is 0, but must be 1 or more"), std::string::npos) << none.message();
  for (const double factor : {0.5, 0.0, -1.0}) {
    options = {};
    options.rope.factor = factor;
    const Error error = test::error_of([&] { make_decoder(options); });
    EXPECT_EQ(error.code(), Code::invalid_argument) << factor;
    EXPECT_NE(error.message().find(text("rope_factor is ", factor)), std::string::npos) << error.message();
  }
}

TEST(Families, AKeyIsHarmlessIfNoWordOfItSpeaksOfModels) {
  const Family& family = family_named("llama");
  for (const char* key :
       {"my_own_field", "note", "wandb_run", "Trained by", "eos_token_id", "image_token_id"})
    EXPECT_TRUE(is_harmless(family, key)) << key;
  for (const char* key : {"logit_scale", "use_qk_norm", "attn_logit_softcapping", "num_experts", "seq_length",
                          "Residual-Multiplier", "rope2", "text_config"})
    EXPECT_FALSE(is_harmless(family, key)) << key;
}

TEST(Families, ParametersHaveTheNamesOfTheFilesOfTheirFamily) {
  Family family;
  EXPECT_EQ(name_in_files(family, "model.norm.weight"), "model.norm.weight");
  family.renamed = {{"model.norm.weight", "transformer.ln_f.weight"},
                    {"model.layers.*.mlp.up_proj.weight", "transformer.h.*.mlp.c_fc.weight"}};
  EXPECT_EQ(name_in_files(family, "model.norm.weight"), "transformer.ln_f.weight");
  EXPECT_EQ(name_in_files(family, "model.layers.0.mlp.up_proj.weight"), "transformer.h.0.mlp.c_fc.weight");
  EXPECT_EQ(name_in_files(family, "model.layers.117.mlp.up_proj.weight"),
            "transformer.h.117.mlp.c_fc.weight");
  for (const char* other :
       {"model.layers..mlp.up_proj.weight", "model.layers.1x.mlp.up_proj.weight",
        "model.layers.1.mlp.up_proj.bias", "model.layers.1.mlp.up_proj.weight.x", "lm_head.weight"})
    EXPECT_EQ(name_in_files(family, other), other);
}

}  // namespace
}  // namespace gangway

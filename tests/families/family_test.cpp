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

TEST(Families, AWindowBelowThePositionsIsRefused) {
  DecoderOptions options = family_named("mistral").options;
  options.window = options.max_positions - 1;
  EXPECT_EQ(test::error_of([&] { make_decoder(options); }).code(), Code::not_supported);
  options.window = options.max_positions;
  EXPECT_NE(make_decoder(options), nullptr);
}

}  // namespace
}  // namespace gangway

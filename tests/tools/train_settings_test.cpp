// run.toml: what gw-train takes, and the one line for each thing that it refuses.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "tools/train/settings.h"

namespace gangway::train {
namespace {

constexpr const char* kLeast =
    "[model]\nfolder = \"m\"\n[data]\ntrain = \"a.u8\"\n[train]\nsteps = 10\nglobal_batch = "
    "4\n[checkpoint]\nfolder = "
    "\"run\"\n";

class TrainSettings : public testing::Test {
 protected:
  void SetUp() override {
    path_ =
        std::filesystem::temp_directory_path() / ("gangway-settings-" + std::to_string(getpid()) + ".toml");
  }
  void TearDown() override { std::filesystem::remove(path_); }
  Settings read(const std::string& text,
                const std::vector<std::pair<std::string, std::string>>& overrides = {}) {
    std::ofstream(path_) << text;
    return Settings::read(path_, overrides);
  }
  // The refusal, without the file's folder.
  std::string refusal(const std::string& text,
                      const std::vector<std::pair<std::string, std::string>>& overrides = {}) {
    try {
      read(text, overrides);
    } catch (const SettingsError& error) {
      std::string why = error.what();
      if (const size_t at = why.find(path_); at != std::string::npos)
        why.replace(at, path_.size(), "run.toml");
      return why;
    }
    return "nothing was refused";
  }
  std::string path_;
};

TEST_F(TrainSettings, TheLeastFileHasTheDefaultsOfTheTable) {
  const Settings s = read(kLeast);
  EXPECT_EQ(s.integer("train.steps"), 10);
  EXPECT_EQ(s.degree("mesh.dp_shard"), -1);
  EXPECT_EQ(s.degree("mesh.tp"), 1);
  EXPECT_EQ(s.text("optimizer.name"), "adamw");
  EXPECT_TRUE(std::isinf(s.number("train.max_hours")));
  EXPECT_TRUE(s.flag("checkpoint.verify"));
  EXPECT_FALSE(s.given("mesh.tp"));
  EXPECT_TRUE(s.sources("data.validation").empty());
}

TEST_F(TrainSettings, TheCommandLineReplacesTheFile) {
  const Settings s = read(kLeast, {{"train.steps", "2000"},
                                   {"mesh.dp_shard", "auto"},
                                   {"checkpoint.folder", "17"},
                                   {"data.train", "[\"b.u8\", \"c.u8\"]"},
                                   {"optimizer.lr", "1e-3"}});
  EXPECT_EQ(s.integer("train.steps"), 2000);
  EXPECT_EQ(s.text("checkpoint.folder"), "17");
  ASSERT_EQ(s.sources("data.train").size(), 2u);
  EXPECT_EQ(s.sources("data.train")[1].path, "c.u8");
  EXPECT_EQ(s.optimizer_options().at("lr").text, "0.001");
  EXPECT_EQ(s.origin("train.steps"), "the command line");
}

TEST_F(TrainSettings, SourcesHavePathWeightAndFormat) {
  const Settings s = read(
      kLeast, {{"data.train", "[{path = \"a.bin\", weight = 0.7, format = \"llm.c\"}, {path = \"b.bin\"}]"}});
  const std::vector<DataPath> sources = s.sources("data.train");
  ASSERT_EQ(sources.size(), 2u);
  EXPECT_EQ(sources[0].weight, 0.7);
  EXPECT_EQ(sources[0].format, "llm.c");
  EXPECT_EQ(sources[1].weight, 1);
}

TEST_F(TrainSettings, AnUnknownKeyIsNamedWithItsLineAndTheNearestKey) {
  EXPECT_EQ(refusal(std::string(kLeast) + "[mesh]\ndp_shards = 2\n"),
            "run.toml:11: unknown key mesh.dp_shards; did you mean mesh.dp_shard? (gw-train --help lists all "
            "keys)");
  EXPECT_EQ(refusal(kLeast, {{"weather", "fine"}}),
            "the command line: unknown key weather (gw-train --help lists all keys)");
}

TEST_F(TrainSettings, AWrongTypeIsNamedWithTheValue) {
  EXPECT_EQ(refusal(std::string(kLeast) + "[mesh]\ntp = \"two\"\n"),
            "run.toml:11: mesh.tp is a number of ranks or \"auto\", not \"two\"");
  EXPECT_EQ(refusal(kLeast, {{"train.steps", "1.5"}}),
            "the command line: train.steps is a whole number, not 1.5");
  EXPECT_EQ(refusal(kLeast, {{"checkpoint.verify", "1"}}),
            "the command line: checkpoint.verify is true or false, not 1");
  EXPECT_EQ(refusal(std::string(kLeast) + "[sample]\nprompt = 7\n"),
            "run.toml:11: sample.prompt is a text, not 7");
}

TEST_F(TrainSettings, AValueOutOfRangeIsNamedWithTheRange) {
  EXPECT_EQ(refusal(kLeast, {{"train.steps", "0"}}),
            "the command line: train.steps = 0 is outside of 1..1000000000000");
  EXPECT_EQ(refusal(kLeast, {{"mesh.tp", "0"}}), "the command line: mesh.tp = 0 is outside of 1..1000000");
  EXPECT_EQ(refusal(kLeast, {{"optimizer.max_grad_norm", "-1"}}),
            "the command line: optimizer.max_grad_norm = -1 is outside of [0, inf)");
  EXPECT_EQ(refusal(kLeast, {{"train.param_dtype", "f8"}}),
            "the command line: train.param_dtype is one of f32, bf16, f16, not \"f8\"");
  EXPECT_EQ(refusal(kLeast, {{"data.train", "[{path = \"a\", weight = 0}]"}}),
            "the command line: data.train: the weight of a is not a finite number above 0");
}

TEST_F(TrainSettings, EvaluationsWithoutDataAreRefused) {
  EXPECT_EQ(
      refusal(std::string(kLeast) + "[evaluate]\nevery = 5\n"),
      "run.toml:11: evaluate.every = 5 asks for evaluations, but data.validation names no files for them");
}

TEST_F(TrainSettings, DifferencesOfSettingsNameTheKeyAndBothValues) {
  const std::string before = numeric_settings(read(kLeast), 2);
  const std::string now =
      numeric_settings(read(kLeast, {{"train.global_batch", "8"}, {"model.fp8", "**.mlp"}}), 2);
  EXPECT_TRUE(setting_differences(before, before).empty());
  EXPECT_EQ(setting_differences(before, now),
            (std::vector<std::string>{"model.fp8: none in the checkpoint, **.mlp now",
                                      "train.global_batch: 4 in the checkpoint, 8 now"}));
}

TEST_F(TrainSettings, HelpListsTheOptionsOfEachOptimizer) {
  const std::string help = describe_keys();
  for (const char* line :
       {"\n  lr   ", "\n  schedule   ", "\n  of muon:\n", "\n  ns_steps   ", "\n  moment_dtype   "})
    EXPECT_NE(help.find(line), std::string::npos) << line << help;
}

TEST_F(TrainSettings, AMissingKeyIsNamed) {
  EXPECT_EQ(refusal("[model]\nfolder = \"m\"\n"),
            "run.toml: the key data.train is missing (token files: a path, a list, or a list of {path, "
            "weight, format}; each entry is a source, of equal weight unless it has one; the files of a "
            "folder or pattern "
            "are one source)");
}

TEST_F(TrainSettings, ATextThatIsNoTomlIsNamedWithItsLine) {
  const std::string why = refusal("[model]\nfolder = \n");
  EXPECT_EQ(why.rfind("run.toml:2: ", 0), 0u) << why;
}

TEST_F(TrainSettings, AFileThatIsMissingIsNamed) {
  try {
    Settings::read("/nowhere/run.toml", {});
    FAIL();
  } catch (const SettingsError& error) {
    EXPECT_STREQ(error.what(), "cannot read /nowhere/run.toml: No such file or directory");
  }
}

TEST_F(TrainSettings, HelpHasEveryKeyAndItsDefault) {
  const std::string help = describe_keys();
  for (const Key& key : keys()) {
    const std::string name = std::string(key.name).substr(std::string(key.name).find('.') + 1);
    EXPECT_NE(help.find("  " + name + " "), std::string::npos) << key.name;
  }
  EXPECT_NE(help.find("(default adamw)"), std::string::npos);
}

}  // namespace
}  // namespace gangway::train

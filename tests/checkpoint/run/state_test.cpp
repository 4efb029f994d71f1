// state.json: what is written is read, and nothing else is.
#include "checkpoint/run/state.h"

#include <gtest/gtest.h>

#include <cmath>

#include <nlohmann/json.hpp>

#include "base/error_of.h"
#include "checkpoint/run/state_text.h"

namespace gangway::test {
namespace {

StoredBlock block(const std::string& tensor, std::vector<int64_t> first, Shape shape, uint64_t hash) {
  StoredBlock out{tensor, whole_box(shape), hash};
  std::copy(first.begin(), first.end(), out.box.first.begin());
  return out;
}

CheckpointState full_state() {
  CheckpointState state;
  state.step = 500;
  state.tokens = INT64_MAX;
  state.mesh = R"({"dp_shard": 4, "note": "a } in a text, and \" too"})";
  state.models[""] = R"({"dtype": "f32", "parameters": 12})";
  state.models["teacher \"quoted\"\n\xc3\xa9"] = "{}";
  state.optimizers[""] = {
      "adamw", 500, 3e-4, 0.1, 65536, 17, {{"a", 0}, {"b", 400}}, R"({"betas": [0.9, 0.95]})"};
  state.optimizers["other"] = {"sgd", 0, 0, 5e-324, 1.7976931348623157e308, 0, {}, "{}"};
  state.texts["data"] = "{\"rows\": 1}";
  state.texts["empty"] = "";
  state.texts["control"] = std::string("a\0b\x1f\x7f\\", 6);
  for (int byte = 0; byte < 256; ++byte) state.user += static_cast<char>(byte);
  state.files = {
      {"config.json", 1000, 0x0123456789abcdef, {}},
      {"model-00001-of-00002.safetensors",
       UINT64_MAX,
       0,
       {block("w", {0, 0}, {2, 5}, UINT64_MAX), block("w", {2, 0}, {1, 5}, 1), block("scalar", {}, {}, 2),
        block("w", {3, 0}, {1, 5}, 3), block("v", {int64_t{1} << 40}, {7}, 4)}},
      {"teacher/model.safetensors", 8, 5, {}},
  };
  return state;
}

void expect_equal(const CheckpointState& a, const CheckpointState& b) {
  EXPECT_EQ(a.step, b.step);
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_EQ(a.mesh, b.mesh);
  EXPECT_EQ(a.models, b.models);
  EXPECT_EQ(a.texts, b.texts);
  EXPECT_EQ(a.user, b.user);
  ASSERT_EQ(a.optimizers.size(), b.optimizers.size());
  for (const auto& [name, x] : a.optimizers) {
    const StoredOptimizer& y = b.optimizers.at(name);
    EXPECT_EQ(x.kind, y.kind);
    EXPECT_EQ(x.steps, y.steps);
    EXPECT_EQ(x.lr, y.lr);
    EXPECT_EQ(x.configured_lr, y.configured_lr);
    EXPECT_EQ(x.loss_scale, y.loss_scale);
    EXPECT_EQ(x.finite_steps, y.finite_steps);
    EXPECT_EQ(x.first_steps, y.first_steps);
    EXPECT_EQ(x.hyperparameters, y.hyperparameters);
  }
  ASSERT_EQ(a.files.size(), b.files.size());
  for (size_t i = 0; i < a.files.size(); ++i) {
    const StoredFile &x = a.files[i], &y = b.files[i];
    EXPECT_EQ(x.name, y.name);
    EXPECT_EQ(x.bytes, y.bytes);
    EXPECT_EQ(x.hash, y.hash);
    ASSERT_EQ(x.blocks.size(), y.blocks.size());
    for (size_t j = 0; j < x.blocks.size(); ++j) {
      EXPECT_EQ(x.blocks[j].tensor, y.blocks[j].tensor);
      EXPECT_EQ(x.blocks[j].box.first, y.blocks[j].box.first);
      EXPECT_TRUE(x.blocks[j].box.shape == y.blocks[j].box.shape);
      EXPECT_EQ(x.blocks[j].hash, y.blocks[j].hash);
    }
  }
}

// The text with a right hash after something in it was replaced.
std::string with(std::string json, const std::string& from, const std::string& to) {
  const size_t at = json.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  if (at != std::string::npos) json.replace(at, from.size(), to);
  json.resize(json.size() - last_lines("").size());
  return json + last_lines(json);
}

TEST(State, EveryFieldIsReadAsItWasWritten) {
  const CheckpointState state = full_state();
  const std::string json = to_json(state);
  expect_equal(parse_state(json, "state.json"), state);
  CheckpointState empty;
  empty.mesh = "{}";  // as which no text is written
  expect_equal(parse_state(to_json({}), "state.json"), empty);
}

TEST(State, UserBytesOfEverySizeAreRead) {
  for (const size_t size : {0, 1, 2, 3, 4, 100'001}) {
    CheckpointState state;
    state.user.assign(size, '\xfe');
    EXPECT_EQ(parse_state(to_json(state), "state.json").user, state.user) << size;
  }
}

TEST(State, IsJsonThatOthersRead) {
  const nlohmann::json json = nlohmann::json::parse(to_json(full_state()));
  EXPECT_EQ(json["format"], 1);
  EXPECT_EQ(json["optimizers"][""]["lr"], 3e-4);
  EXPECT_EQ(json["models"][""]["parameters"], 12);
  EXPECT_EQ(json["files"][1]["tensors"][0]["name"], "w");
  EXPECT_EQ(json["files"][1]["tensors"][0]["blocks"][1],
            nlohmann::json::parse(R"([2,0,1,5,"0000000000000001"])"));
}

TEST(State, EveryFlippedBitIsCorrupt) {
  std::string json = to_json(full_state());
  for (size_t i = 0; i < json.size(); ++i)
    for (int bit = 0; bit < 8; ++bit) {
      json[i] = static_cast<char>(json[i] ^ 1 << bit);
      const Error error = error_of([&] { parse_state(json, "run/state.json"); });
      json[i] = static_cast<char>(json[i] ^ 1 << bit);
      ASSERT_EQ(error.code(), Code::corrupt) << "bit " << bit << " of byte " << i;
      ASSERT_EQ(error.message().find("run/state.json"), 0u) << error.message();
    }
}

TEST(State, EveryTruncationAndEveryAddedByteIsCorrupt) {
  const std::string json = to_json(full_state());
  for (size_t size = 0; size < json.size(); ++size)
    ASSERT_EQ(error_of([&] { parse_state(std::string_view(json).substr(0, size), "s"); }).code(),
              Code::corrupt);
  for (const char* more : {"\n", " ", "{", "x"}) {
    EXPECT_EQ(error_of([&] { parse_state(json + more, "s"); }).code(), Code::corrupt);
    EXPECT_EQ(error_of([&] { parse_state(more + json, "s"); }).code(), Code::corrupt);
  }
}

TEST(State, ALaterFormatIsNotSupported) {
  const Error error =
      error_of([] { parse_state(with(to_json(full_state()), "\"format\": 1", "\"format\": 2"), "s"); });
  EXPECT_EQ(error.code(), Code::not_supported);
  EXPECT_NE(error.message().find("s has format 2; this library reads format 1"), std::string::npos)
      << error.message();
}

TEST(State, WhatTheWriterWouldNotWriteIsCorruptAndNamed) {
  struct Case {
    const char *from, *to, *words;
  };
  for (const Case& c : std::vector<Case>{
           {"\"step\": 500", "\"step\": -1", "step is -1"},
           {"\"step\": 500", "\"step\": 0500", "is not in the form"},
           {"\"step\": 500", "\"step\": 99999999999999999999", "s: step"},
           {"\"step\": 500", "\"stop\": 500", "s: step"},
           {"\"step\": 500", "\"step\":  500", "s: step"},
           {"\"lr\":0.0003", "\"lr\":3e-4", "is not in the form"},
           {"\"lr\":0.0003", "\"lr\":null", "s: lr"},
           {"\"lr\":0.0003", "\"lr\":inf", "lr is inf"},
           {"\"steps\":500", "\"steps\":-5", "steps is -5"},
           {"\"b\":400", "\"a\":400", "is not in the form"},
           {"\"b\":400", "\"b\":-4", "first_steps.\"b\" is -4"},
           {"{\"dp_shard\": 4,", "{\"dp_shard\": x,", "mesh is no JSON object"},
           {"{\"dp_shard\": 4,", "[\"dp_shard\": 4,", "s: mesh"},
           {"config.json", "../fig.json", "is no file of the folder"},
           {"config.json", "/onfig.json", "is no file of the folder"},
           {"config.json", "con//g.json", "is no file of the folder"},
           {"config.json", "state.json", "has its own hash"},
           {"config.json", "z", "they must be sorted"},
           {"\"w\"", "\"\\xff\"", "s: name"},
           {"[2,0,1,5,", "[2,0,0,5,", "has 0 rows from 2 of dim 0"},
           {"[2,0,1,5,", "[-2,0,1,5,", "has 1 rows from -2 of dim 0"},
           {"[2,0,1,5,", "[2,0,1,", "s: blocks"},
           {"[2,0,1,5,", "[2,0,1152921504606846976,5,", "2^58"},
           {"[2,0,1,5,", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,", "over 8 dims"},
           {"0123456789abcdef", "0123456789ABCDEF", "is not in the form"},
           {"0123456789abcdef", "0123456789abcde", "no hash of 16 digits"},
       }) {
    const Error error = error_of([&] { parse_state(with(to_json(full_state()), c.from, c.to), "s"); });
    EXPECT_EQ(error.code(), Code::corrupt) << c.to << ": " << error.message();
    EXPECT_NE(error.message().find(c.words), std::string::npos) << c.to << ": " << error.message();
  }
}

TEST(State, WhatNoReaderCouldTakeIsRefused) {
  const auto refuses = [](const char* words, auto&& change) {
    CheckpointState state = full_state();
    change(state);
    const Error error = error_of([&] { to_json(state); });
    EXPECT_EQ(error.code(), Code::invalid_argument) << words;
    EXPECT_NE(error.message().find(words), std::string::npos) << error.message();
  };
  refuses("lr is nan", [](CheckpointState& s) { s.optimizers[""].lr = std::nan(""); });
  refuses("loss_scale is inf", [](CheckpointState& s) { s.optimizers[""].loss_scale = INFINITY; });
  refuses("hyperparameters is no JSON object",
          [](CheckpointState& s) { s.optimizers[""].hyperparameters = "3"; });
  refuses("mesh is no JSON object", [](CheckpointState& s) { s.mesh = "{"; });
  refuses("is no JSON object", [](CheckpointState& s) { s.models["x"] = "null"; });
  refuses("UTF-8", [](CheckpointState& s) { s.texts["x"] = "\xff"; });
  refuses("UTF-8", [](CheckpointState& s) { s.texts["\xff"] = ""; });
  refuses("they must be sorted", [](CheckpointState& s) { std::swap(s.files[0], s.files[1]); });
  refuses("has its own hash", [](CheckpointState& s) { s.files = {{"state.json", 1, 1, {}}}; });
  refuses("tokens is -1", [](CheckpointState& s) { s.tokens = -1; });
  refuses("over the limit", [](CheckpointState& s) { s.user.assign(kUserLimit + 1, 'x'); });
}

}  // namespace
}  // namespace gangway::test

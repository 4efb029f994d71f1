// Sets of tensors in files: what ranks write in boxes is read as whole tensors.
#include "checkpoint/run/tensor_set.h"

#include <algorithm>
#include <random>

#include <nlohmann/json.hpp>

#include "base/expect_error.h"
#include "checkpoint/run/cover.h"
#include "checkpoint/run/small_checkpoint.h"
#include "checkpoint/source.h"

namespace gangway::test {
namespace {

void expect_values(const Source& source, const std::vector<TensorSpecOnDisk>& specs, int seed) {
  ASSERT_EQ(source.tensors().size(), specs.size());
  for (const TensorSpecOnDisk& spec : specs) {
    const Source::Entry& entry = source.tensors().at(spec.name);
    EXPECT_EQ(entry.tensor.dtype, spec.dtype);
    EXPECT_TRUE(entry.tensor.shape == spec.shape) << spec.name;
    const std::vector<char> wanted = values_of(spec, seed);
    std::vector<char> found(wanted.size());
    entry.file->read(entry.tensor, 0, found.size(), found.data());
    EXPECT_TRUE(found == wanted) << spec.name;
  }
}

TEST(TensorSet, OneFileAndSeveralHaveTheValuesOfAllRanks) {
  const std::vector<TensorSpecOnDisk> specs = small_tensors();
  struct Case {
    uint64_t limit;
    size_t files;
  };
  // 140 + 20 + 4 + 8 + 0 + 54 + 16 + 13 bytes.
  for (const Case& c : std::vector<Case>{{0, 1}, {1000, 1}, {255, 1}, {254, 2}, {160, 2}, {60, 4}, {1, 7}}) {
    const TemporaryFolder folder;
    const std::vector<StoredFile> files = write_set(folder.path(), "model", specs, c.limit, 1);
    EXPECT_EQ(files.size(), c.files + (c.files > 1 ? 1 : 0)) << c.limit;
    EXPECT_EQ(std::filesystem::exists(folder.path() + "/model.safetensors"), c.files == 1);
    expect_values(Source::open(folder.path()), specs, 1);
  }
}

TEST(TensorSet, FilesAreNamedAsHuggingFaceNamesThem) {
  const TensorSetPlan plan("teacher/model", {{"a", DType::f32, {4}}, {"b", DType::f32, {4}}}, 16,
                           {{"note", "x"}});
  ASSERT_EQ(plan.files().size(), 2u);
  EXPECT_EQ(plan.files()[0].name, "teacher/model-00001-of-00002.safetensors");
  EXPECT_EQ(plan.index_name(), "teacher/model.safetensors.index.json");
  const nlohmann::json index = nlohmann::json::parse(plan.index());
  EXPECT_EQ(index["metadata"]["total_size"], 32);
  EXPECT_EQ(index["weight_map"]["b"], "model-00002-of-00002.safetensors");
  const TemporaryFolder folder;
  create_files(plan, folder.path());
  const SafetensorsFile file(folder.path() + "/teacher/model-00001-of-00002.safetensors");
  EXPECT_EQ(file.metadata(), (std::map<std::string, std::string>{{"format", "pt"}, {"note", "x"}}));
}

TEST(TensorSet, NoTensorAtAllIsAFile) {
  const TemporaryFolder folder;
  EXPECT_EQ(write_set(folder.path(), "optimizer", {}, 100, 1).size(), 1u);
  EXPECT_TRUE(SafetensorsFile(folder.path() + "/optimizer.safetensors").tensors().empty());
}

TEST(TensorSet, WhatCannotBeStoredIsRefused) {
  expect_error(Code::invalid_argument, "checkpoint: model has two tensors \"a\"", [] {
    TensorSetPlan("model", {{"a", DType::f32, {1}}, {"b", DType::f32, {1}}, {"a", DType::f32, {1}}}, 4, {});
  });
  const TensorSetPlan plan("model", {{"a", DType::f32, {4, 3}}}, 0, {});
  expect_error(Code::not_found, "checkpoint: model.safetensors has no tensor \"b\"",
               [&] { plan.place("b"); });
  const TemporaryFolder folder;
  create_files(plan, folder.path());
  TensorSetWriter writer(plan, folder.path());
  const char bytes[100] = {};
  Box box{{2, 0}, {3, 3}};
  expect_error(Code::invalid_argument,
               "checkpoint: box [2:5, 0:3] is not inside tensor \"a\" of shape [4, 3]",
               [&] { writer.write("a", box, bytes); });
  box = {{0}, {4}};
  expect_error(Code::invalid_argument, "checkpoint: box [0:4] is not inside tensor \"a\" of shape [4, 3]",
               [&] { writer.write("a", box, bytes); });
  const Error error = error_of([&] { create_files(plan, folder.path()); });
  EXPECT_EQ(error.system_error, EEXIST) << "files of another save are not overwritten: " << error.message();
}

TEST(TensorSet, BlocksHaveAtMost4MiBAndCoverEachTensorOnce) {
  constexpr int64_t kMany = kBlockBytes / 4;
  for (const Shape& shape : std::vector<Shape>{{},
                                               {1},
                                               {0},
                                               {3, 0},
                                               {kMany},
                                               {kMany + 1},
                                               {3, kMany + 1},
                                               {2, 3, kMany},
                                               {kMany, 3},
                                               {7, 11},
                                               {kMany / 2 + 1, 1, 5}}) {
    std::vector<Box> boxes;
    int64_t next = 0;
    for_each_block(shape, 4, [&](const Box& box, int64_t at) {
      EXPECT_EQ(at, next) << "blocks follow each other in the row-major tensor";
      EXPECT_LE(bytes_of(box.shape, 4), kBlockBytes);
      EXPECT_TRUE(is_inside(box, shape));
      int runs = 0;
      for_each_run(shape, box, [&](int64_t global, int64_t, int64_t count) {
        ++runs;
        EXPECT_EQ(global, at);
        EXPECT_EQ(count, box.shape.count());
      });
      EXPECT_EQ(runs, 1);
      next = at + box.shape.count();
      boxes.push_back(box);
    });
    EXPECT_EQ(next, shape.count()) << shape.text();
    EXPECT_LE(boxes.size(), static_cast<size_t>(shape.count() / kMany * 2 + 2)) << shape.text();
    std::vector<const Box*> all;
    for (const Box& box : boxes) all.push_back(&box);
    EXPECT_EQ(gap_or_overlap(all, shape), "") << shape.text();
  }
}

TEST(TensorSet, ALargeTensorIsWrittenInBlocksAndVerified) {
  const TemporaryFolder folder;
  const TensorSpecOnDisk spec{"large", DType::f32, {3, (1 << 20) + 5}};
  const TensorSetPlan plan("model", {spec}, 0, {});
  CheckpointState state;
  state.files = create_files(plan, folder.path());
  TensorSetWriter writer(plan, folder.path());
  const std::vector<char> values = values_of(spec, 0);
  writer.write("large", whole_box(spec.shape), values.data());
  writer.sync();
  state.files[0].blocks = writer.blocks().at("model.safetensors");
  EXPECT_EQ(state.files[0].blocks.size(), 6u);
  verify_checkpoint(folder.path(), state);
  expect_values(Source::open(folder.path()), {spec}, 0);
}

TEST(Cover, AnElementThatIsMissingOrTwiceInIsNamed) {
  const Shape shape{3, 4};
  const auto problem = [&](std::vector<Box> boxes) {
    std::vector<const Box*> all;
    for (const Box& box : boxes) all.push_back(&box);
    return gap_or_overlap(all, shape);
  };
  EXPECT_EQ(problem({}), "element [0, 0] is in 0 blocks");
  EXPECT_EQ(problem({{{0, 0}, {3, 4}}}), "");
  EXPECT_EQ(problem({{{0, 0}, {3, 4}}, {{2, 1}, {1, 1}}}), "element [2, 1] is in 2 blocks");
  EXPECT_EQ(problem({{{0, 0}, {3, 2}}, {{0, 2}, {2, 2}}}), "element [2, 2] is in 0 blocks");
  EXPECT_EQ(problem({{{0, 0}, {2, 4}}, {{2, 0}, {1, 4}}, {{2, 0}, {1, 4}}}), "element [2, 0] is in 2 blocks");
  const Box scalar{{}, {}};
  EXPECT_EQ(gap_or_overlap({&scalar}, {}), "");
  EXPECT_EQ(gap_or_overlap({}, {}), "element [] is in 0 blocks");
  EXPECT_EQ(gap_or_overlap({&scalar, &scalar}, {}), "element [] is in 2 blocks");
  EXPECT_EQ(gap_or_overlap({}, {0, 3}), "");
}

// The reference counts the blocks of each element.
TEST(Cover, AgreesWithCountingEveryElement) {
  std::mt19937 random(1);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  int exact = 0;
  for (int trial = 0; trial < 2000; ++trial) {
    const Shape shape{1 + below(3), 1 + below(3), 1 + below(2)};
    std::vector<Box> boxes = boxes_of(shape, {1 + below(2)});
    if (below(2) == 0) boxes.erase(boxes.begin() + below(static_cast<int64_t>(boxes.size())));
    for (int64_t more = below(3) - 1; more > 0; --more) {
      Box box{{}, shape};
      for (int d = 0; d < 3; ++d) {
        box.first[static_cast<size_t>(d)] = below(shape[d]);
        box.shape[d] = 1 + below(shape[d] - box.first[static_cast<size_t>(d)]);
      }
      boxes.push_back(box);
    }
    bool once = true;
    for (int64_t i = 0; i < shape.count(); ++i) {
      const int64_t at[] = {i / shape[2] / shape[1], i / shape[2] % shape[1], i % shape[2]};
      once = once && std::count_if(boxes.begin(), boxes.end(), [&](const Box& box) {
                       return at[0] >= box.first[0] && at[0] < box.last(0) && at[1] >= box.first[1] &&
                              at[1] < box.last(1) && at[2] >= box.first[2] && at[2] < box.last(2);
                     }) == 1;
    }
    std::vector<const Box*> all;
    for (const Box& box : boxes) all.push_back(&box);
    ASSERT_EQ(gap_or_overlap(all, shape).empty(), once) << "trial " << trial;
    exact += once ? 1 : 0;
  }
  EXPECT_GT(exact, 200);
  EXPECT_LT(exact, 1800);
}

}  // namespace
}  // namespace gangway::test

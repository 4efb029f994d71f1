// Verification: damage of any kind, in any file, is found and named.
#include "checkpoint/run/verify.h"

#include <random>

#include "base/expect_error.h"
#include "checkpoint/run/small_checkpoint.h"
#include "checkpoint/safetensors.h"

namespace gangway::test {
namespace {

std::vector<std::string> files_of(const CheckpointState& state) {
  std::vector<std::string> names = {kStateName};
  for (const StoredFile& file : state.files) names.push_back(file.name);
  return names;
}

// Returns the tensor that has a byte of a file; empty for the header, and for a file of another kind.
std::string tensor_at(const std::string& path, uint64_t byte) {
  if (!path.ends_with(".safetensors")) return "";
  const SafetensorsFile file(path);
  uint64_t data = file.file().opened().bytes;
  for (const auto& [name, tensor] : file.tensors()) data -= tensor.last - tensor.first;
  for (const auto& [name, tensor] : file.tensors())
    if (byte >= data + tensor.first && byte < data + tensor.last) return name;
  return "";
}

TEST(Verify, AWholeCheckpointPasses) {
  const TemporaryFolder folder;
  const CheckpointState state = write_checkpoint(folder.path(), 500, 1);
  EXPECT_GT(state.files.size(), 7u) << "the model is split into several files";
  for (const size_t shares : {1, 2, 3, 100}) verify_all(folder.path(), shares);
}

TEST(Verify, TwoHundredFlippedBitsAreFoundAndNamed) {
  const TemporaryFolder folder;
  const std::vector<std::string> names = files_of(write_checkpoint(folder.path(), 500, 1));
  std::mt19937 random(7);
  int in_tensors = 0;
  for (int flip = 0; flip < 200; ++flip) {
    const std::string path = folder.path() + "/" + names[random() % names.size()];
    const std::string whole = read_all(path);
    const size_t byte = random() % whole.size();
    const std::string tensor = tensor_at(path, byte);
    std::string flipped = whole;
    flipped[byte] = static_cast<char>(flipped[byte] ^ 1 << random() % 8);
    write_all(path, flipped);
    const Error error = error_of([&] { verify_all(folder.path()); });
    EXPECT_EQ(error.code(), Code::corrupt) << path << " byte " << byte << ": " << error.message();
    EXPECT_NE(error.message().find(path), std::string::npos) << error.message();
    EXPECT_NE(error.message().find(tensor), std::string::npos) << tensor << ": " << error.message();
    in_tensors += tensor.empty() ? 0 : 1;
    write_all(path, whole);
  }
  EXPECT_GT(in_tensors, 20);
  EXPECT_LT(in_tensors, 160);
  verify_all(folder.path());
}

TEST(Verify, EveryFileThatIsMissingOrOfAnotherSizeIsNamed) {
  const TemporaryFolder folder;
  const CheckpointState state = write_checkpoint(folder.path(), 500, 1);
  for (const std::string& name : files_of(state)) {
    const std::string path = folder.path() + "/" + name, whole = read_all(path);
    const bool is_state = name == kStateName;
    const auto expect_found = [&](Code code, const char* words) {
      const Error error = error_of([&] { verify_all(folder.path()); });
      EXPECT_EQ(error.code(), code) << name << ": " << error.message();
      EXPECT_NE(error.message().find(path), std::string::npos) << error.message();
      EXPECT_TRUE(is_state || error.message().find(words) != std::string::npos) << error.message();
    };
    std::filesystem::remove(path);
    expect_found(is_state ? Code::not_found : Code::corrupt, "is missing");
    write_all(path, whole.substr(0, whole.size() - 1));
    expect_found(Code::corrupt, "it was cut off");
    write_all(path, "");
    expect_found(Code::corrupt, "it was cut off");
    write_all(path, whole + '\0');
    expect_found(Code::corrupt, "bytes were added");
    write_all(path, whole);
  }
  verify_all(folder.path());
}

TEST(Verify, SharesTogetherReadEveryByteOnce) {
  const TemporaryFolder folder;
  const CheckpointState state = write_checkpoint(folder.path(), 500, 1);
  uint64_t bytes = 0;
  for (const StoredFile& file : state.files) bytes += file.bytes;
  for (const size_t shares : {1, 2, 3, 7, 1000}) {
    uint64_t read = 0;
    for (size_t share = 0; share < shares; ++share)
      verify_checkpoint(folder.path(), state, share, shares, [&](uint64_t more) { read += more; });
    EXPECT_EQ(read, bytes) << shares << " shares";
  }
  EXPECT_EQ(error_of([&] { verify_checkpoint(folder.path(), state, 2, 2); }).code(), Code::invalid_argument);
}

// What a state.json can say that does not fit its files, although its own hash is right.
TEST(Verify, BlocksThatDoNotCoverATensorAreNamed) {
  const TemporaryFolder folder;
  const CheckpointState whole = write_checkpoint(folder.path(), 500, 1);
  const auto refuses = [&](const std::string& words, auto&& change) {
    CheckpointState state = whole;
    for (StoredFile& file : state.files)
      if (file.name == "optimizer.safetensors") change(file.blocks);
    const Error error = error_of([&] { verify_checkpoint(folder.path(), state); });
    EXPECT_EQ(error.code(), Code::corrupt);
    EXPECT_NE(error.message().find("optimizer.safetensors: tensor \"exp_avg.embed.weight\"" + words),
              std::string::npos)
        << error.message();
  };
  using Blocks = std::vector<StoredBlock>;
  const auto first = [](Blocks& blocks) {
    return std::find_if(blocks.begin(), blocks.end(),
                        [](const StoredBlock& block) { return block.tensor == "exp_avg.embed.weight"; });
  };
  refuses(": element [0, 0] is in 0 blocks", [&](Blocks& blocks) { blocks.erase(first(blocks)); });
  refuses(": element [0, 0] is in 0 blocks", [&](Blocks& blocks) {
    std::erase_if(blocks, [](const StoredBlock& block) { return block.tensor == "exp_avg.embed.weight"; });
  });
  refuses(": element [0, 0] is in 2 blocks", [&](Blocks& blocks) { blocks.push_back(*first(blocks)); });
  refuses(" of shape [7, 5] has a block", [&](Blocks& blocks) { first(blocks)->box.first[0] = 6; });
  refuses(" of shape [7, 5] has a block", [&](Blocks& blocks) { first(blocks)->box = {{}, {2}}; });
  const Error error = error_of([&] {
    CheckpointState state = whole;
    for (StoredFile& file : state.files)
      if (!file.blocks.empty()) file.blocks[0].tensor = "other";
    verify_checkpoint(folder.path(), state);
  });
  EXPECT_NE(error.message().find("has no tensor \"other\""), std::string::npos) << error.message();
}

TEST(Verify, AFolderWithoutAStateIsNotFound) {
  const TemporaryFolder folder;
  expect_error(
      Code::not_found,
      folder.path() +
          "/none/state.json is missing: the folder is no checkpoint of a run, or the file was removed",
      [&] { read_state(folder.path() + "/none"); });
}

}  // namespace
}  // namespace gangway::test

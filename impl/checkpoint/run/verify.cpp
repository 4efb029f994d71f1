#include "checkpoint/run/verify.h"

#include <sys/stat.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <vector>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/line.h"
#include "checkpoint/run/blocks.h"
#include "checkpoint/run/cover.h"
#include "checkpoint/run/plain_files.h"
#include "checkpoint/safetensors.h"

namespace gangway {
namespace {

constexpr uint64_t kStateLimit = 1 << 30;  // bytes of a state.json

using Progress = std::function<void(uint64_t bytes)>;

void tell(const Progress& progress, uint64_t bytes) {
  if (progress) progress(bytes);
}

uint64_t size_of(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) == 0) return static_cast<uint64_t>(status.st_size);
  if (errno == ENOENT || errno == ENOTDIR)
    fail(Code::corrupt, "verify: ", path, " is missing; ", kStateName, " lists it");
  fail_file("verify: reading", path, errno);
}

void check_hash(uint64_t found, uint64_t recorded, const std::string& what) {
  if (found != recorded)
    fail(Code::corrupt, "verify: ", what, ": its hash differs from the one in ", kStateName,
         ", so its bytes were changed");
}

// Hashes the bytes before the data section without parsing them, so that a changed byte is always told so.
void check_header(const std::string& path, const StoredFile& file, const Progress& progress) {
  const InputFile opened(path);
  std::string bytes(8, '\0');
  uint64_t length = 0;
  if (file.bytes >= 8) opened.read(0, 8, bytes.data());
  for (size_t i = 0; i < 8; ++i)
    length |= static_cast<uint64_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  if (file.bytes < 8 || length > file.bytes - 8 || length > kSafetensorsHeaderLimit)
    fail(Code::corrupt, "verify: ", path, ": the header's length, ", length, " of ", file.bytes,
         " bytes, was changed");
  bytes.resize(8 + static_cast<size_t>(length));
  opened.read(8, length, bytes.data() + 8);
  check_hash(XXH3_64bits(bytes.data(), bytes.size()), file.hash, path + ": the header");
  tell(progress, bytes.size());
}

void check_blocks_cover(const std::string& path, const StoredFile& file, const SafetensorsFile& opened) {
  std::map<std::string, std::vector<const Box*>> boxes;
  for (const StoredBlock& block : file.blocks) boxes[block.tensor].push_back(&block.box);
  for (const auto& [name, of_tensor] : boxes) {
    const auto found = opened.tensors().find(name);
    if (found == opened.tensors().end())
      fail(Code::corrupt, "verify: ", path, " has no tensor ", printable(name), ", of which ", kStateName,
           " has blocks");
    for (const Box* box : of_tensor)
      if (!is_inside(*box, found->second.shape))
        fail(Code::corrupt, "verify: ", path, ": tensor ", printable(name), " of shape ",
             found->second.shape.text(), " has a block ", text_of(*box));
  }
  for (const auto& [name, tensor] : opened.tensors())
    if (const std::string problem = gap_or_overlap(boxes[name], tensor.shape); !problem.empty())
      fail(Code::corrupt, "verify: ", path, ": tensor ", printable(name), ": ", problem, " of ", kStateName);
}

void check_block(const std::string& path, const SafetensorsFile& file, const StoredBlock& block,
                 std::vector<char>& buffer) {
  const std::string what = path + ": tensor " + printable(block.tensor) + " " + text_of(block.box);
  const auto found = file.tensors().find(block.tensor);
  if (found == file.tensors().end() || !found->second.unreadable.empty() ||
      !is_inside(block.box, found->second.shape))
    fail(Code::corrupt, "verify: ", what, " is not in the file, but in ", kStateName);
  const size_t item = item_bytes(found->second.dtype);
  const uint64_t bytes = bytes_of(block.box.shape, item);
  if (bytes > kBlockBytes)
    fail(Code::corrupt, "verify: ", what, " has ", bytes, " bytes, over ", kBlockBytes);
  buffer.resize(static_cast<size_t>(bytes));
  for_each_run(found->second.shape, block.box, [&](int64_t global, int64_t local, int64_t count) {
    const uint64_t first = static_cast<uint64_t>(global) * item;
    file.read(found->second, first, first + static_cast<uint64_t>(count) * item,
              buffer.data() + static_cast<size_t>(local) * item);
  });
  check_hash(XXH3_64bits(buffer.data(), buffer.size()), block.hash, what);
}

// Verifies items [first, last) of a file: item 0 is its size and its header, or all of it if it has no
// blocks; item i is its block i - 1.
void verify_file(const std::string& path, const StoredFile& file, size_t first, size_t last,
                 const Progress& progress) {
  const uint64_t size = size_of(path);
  if (size != file.bytes)
    fail(Code::corrupt, "verify: ", path, " has ", size, " bytes, ", file.bytes, " in ", kStateName,
         size < file.bytes ? ": it was cut off" : ": bytes were added");
  if (file.blocks.empty()) {
    const uint64_t hash =
        whole_hash(InputFile(path), [&](const char*, size_t count) { tell(progress, count); });
    return check_hash(hash, file.hash, path);
  }
  check_header(path, file, first == 0 ? progress : Progress{});
  const SafetensorsFile opened(path);
  if (first == 0) check_blocks_cover(path, file, opened);
  std::vector<char> buffer;
  for (size_t item = std::max<size_t>(first, 1); item < last; ++item) {
    poll_interrupt_throttled();
    check_block(path, opened, file.blocks[item - 1], buffer);
    tell(progress, buffer.size());
  }
}

}  // namespace

CheckpointState read_state(const std::string& folder) {
  const std::string path = folder + "/" + kStateName;
  struct stat status {};
  if (stat(path.c_str(), &status) != 0 && (errno == ENOENT || errno == ENOTDIR))
    fail(Code::not_found, path, " is missing: the folder is no checkpoint of a run, or the file was removed");
  return parse_state(InputFile(path).read_all(kStateLimit), path);
}

void verify_checkpoint(const std::string& folder, const CheckpointState& state, size_t index, size_t count,
                       const Progress& progress) {
  if (index >= count) fail(Code::invalid_argument, "verify: share ", index, " of ", count, " does not exist");
  size_t items = 0;
  for (const StoredFile& file : state.files) items += 1 + file.blocks.size();
  const size_t first = items * index / count, last = items * (index + 1) / count;
  size_t end = 0;
  for (const StoredFile& file : state.files) {
    const size_t begin = std::exchange(end, end + 1 + file.blocks.size());
    if (end <= first || begin >= last) continue;
    verify_file(folder + "/" + file.name, file, std::max(first, begin) - begin, std::min(last, end) - begin,
                progress);
  }
}

}  // namespace gangway

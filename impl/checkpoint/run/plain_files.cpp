#include "checkpoint/run/plain_files.h"

#include <fcntl.h>
#include <xxhash.h>

#include <algorithm>
#include <memory>
#include <new>
#include <vector>

#include "base/interrupt.h"
#include "checkpoint/folders.h"
#include "checkpoint/output_file.h"

namespace gangway {
namespace {

// Opens the new file for writing, after its missing folders were made.
std::unique_ptr<OutputFile> new_file(const std::string& folder, const std::string& name) {
  const std::string path = folder + "/" + name;
  make_folders(path.substr(0, path.rfind('/')));
  return std::make_unique<OutputFile>(path, O_WRONLY | O_CREAT | O_EXCL);
}

}  // namespace

StoredFile write_file(const std::string& folder, const std::string& name, std::string_view bytes) {
  const auto file = new_file(folder, name);
  file->write(0, bytes.data(), bytes.size());
  file->sync();
  file->close();
  return {name, bytes.size(), XXH3_64bits(bytes.data(), bytes.size()), {}};
}

StoredFile copy_file(const std::string& from, const std::string& folder, const std::string& name) {
  const InputFile source(from);
  const auto file = new_file(folder, name);
  uint64_t at = 0;
  const uint64_t hash = whole_hash(source, [&](const char* bytes, size_t count) {
    file->write(at, bytes, count);
    at += count;
  });
  file->sync();
  file->close();
  return {name, at, hash, {}};
}

uint64_t whole_hash(const InputFile& file, const std::function<void(const char* bytes, size_t count)>& use) {
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state(XXH3_createState(),
                                                                              XXH3_freeState);
  if (state == nullptr) throw std::bad_alloc();
  XXH3_64bits_reset(state.get());
  const uint64_t size = file.opened().bytes;
  std::vector<char> piece(static_cast<size_t>(std::min<uint64_t>(size, kBlockBytes)));
  for (uint64_t at = 0; at < size;) {
    poll_interrupt_throttled();
    const auto count = static_cast<size_t>(std::min<uint64_t>(size - at, kBlockBytes));
    file.read(at, count, piece.data());
    XXH3_64bits_update(state.get(), piece.data(), count);
    use(piece.data(), count);
    at += count;
  }
  return XXH3_64bits_digest(state.get());
}

}  // namespace gangway

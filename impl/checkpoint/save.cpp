// Saving: rank 0 writes the header into a temporary file beside the target, every rank writes the rows that
// it owns, and only when all of them are on disk does rank 0 rename the file into place. No rank holds more
// than its shards and one small buffer.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <filesystem>
#include <random>

#include "base/error.h"
#include "base/interrupt.h"
#include "checkpoint/config_json.h"
#include "checkpoint/pieces.h"
#include "checkpoint/safetensors.h"
#include "parallel/collective_call.h"
#include "parallel/model/model.h"

namespace gangway {
namespace {

class OwnedFile {
 public:
  OwnedFile() = default;
  OwnedFile(const OwnedFile&) = delete;
  OwnedFile& operator=(const OwnedFile&) = delete;
  ~OwnedFile() {
    if (file_ >= 0) ::close(file_);
  }

  void open(const std::string& path, int flags, const char* what) {
    path_ = path;
    file_ = ::open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (file_ < 0) fail_system(Code::io, text("save: ", what, " ", path), errno);
  }
  void write(uint64_t offset, const void* data, size_t bytes) const {
    const char* from = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t put = pwrite(file_, from, bytes, static_cast<off_t>(offset));
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) fail_system(Code::io, text("save: writing ", path_, " at byte ", offset), errno);
      from += put;
      offset += static_cast<uint64_t>(put);
      bytes -= static_cast<size_t>(put);
    }
  }
  void sync() const {
    if (fsync(file_) != 0) fail_system(Code::io, text("save: fsync of ", path_), errno);
  }
  void close() {
    const int result = ::close(std::exchange(file_, -1));
    if (result != 0) fail_system(Code::io, text("save: closing ", path_), errno);
  }

 private:
  std::string path_;
  int file_ = -1;
};

// A new file under a name that nobody else has; gone again unless it is renamed.
class TemporaryFile {
 public:
  ~TemporaryFile() {
    if (!path_.empty()) unlink(path_.c_str());
  }
  void create(const std::string& folder, const std::string& target) {
    std::random_device random;
    char suffix[20];
    std::snprintf(suffix, sizeof suffix, "%08x%08x", random(), random());
    const std::string path = folder + "/." + target + "." + suffix + ".tmp";
    file.open(path, O_WRONLY | O_CREAT | O_EXCL, "making");
    path_ = path;
  }
  void rename_to(const std::string& path) {
    if (rename(path_.c_str(), path.c_str()) != 0)
      fail_system(Code::io, text("save: renaming ", path_, " to ", path), errno);
    path_.clear();
  }
  const std::string& path() const { return path_; }
  OwnedFile file;

 private:
  std::string path_;
};

void write_whole(const std::string& folder, const std::string& target, const std::string& content) {
  TemporaryFile temporary;
  temporary.create(folder, target);
  temporary.file.write(0, content.data(), content.size());
  temporary.file.sync();
  temporary.file.close();
  temporary.rename_to(folder + "/" + target);
}

void sync_folder(const std::string& folder) {
  OwnedFile file;
  file.open(folder, O_RDONLY | O_DIRECTORY, "opening");
  file.sync();
}

DType stored_dtype(const Parameter& parameter, const SaveOptions& options) {
  return options.dtype == DType{} ? parameter.dtype : options.dtype;
}

void check(Model& model, const std::string& folder, const SaveOptions& options) {
  if (!model.materialized())
    fail(Code::invalid_state, "save: the model has no storage yet; call parallelize or materialize first");
  if (model.device().kind() == DeviceKind::meta)
    fail(Code::invalid_argument, "save: a meta device has no values");
  if (folder.empty()) fail(Code::invalid_argument, "save: the folder's name is empty");
  if (options.dtype != DType{} && !is_floating(options.dtype))
    fail(Code::invalid_argument, "save: dtype = ", name(options.dtype), " is not floating");
}

SafetensorsHeader describe(Model& model, const SaveOptions& options) {
  SafetensorsHeader header;
  header.metadata = options.metadata;
  header.metadata.emplace("format", "pt");  // Hugging Face's loader asks for it
  for (const NamedParameter& named : model.parameters())
    header.tensors[named.name] = {stored_dtype(*named.parameter, options), named.parameter->shape, 0, 0};
  return header;
}

// Of ranks that hold the same rows the first one writes: on axes that do not split this parameter, coordinate
// 0.
bool writes(const Parameter& parameter, const Gangs& gangs) {
  AxisSet split = 0;
  for (const Placement& placement : parameter.layout)
    if (placement.kind == Placement::Kind::shard) split |= parse_axes(placement.axis);
  for (const Axis axis : {Axis::pp, Axis::dp_replicate, Axis::dp_shard, Axis::cp, Axis::tp})
    if ((split & axis_bit(axis)) == 0 && gangs.coordinate(axis) != 0) return false;
  return true;
}

// This rank's rows of one parameter, converted piece by piece.
void write_rows(Model& model, const Parameter& parameter, const StoredTensor& stored, uint64_t data_start,
                const OwnedFile& file, Stream& stream) {
  if (!parameter.shard) return;
  const Tensor rows = parameter.shard.reshape(Shape{parameter.shard.count()});
  const size_t item = item_bytes(stored.dtype);
  std::vector<char> bytes(std::min<size_t>(kPieceBytes, static_cast<size_t>(rows.count()) * item));
  for_pieces(parameter, item, [&](int64_t at, int64_t count, uint64_t to) {
    StackScope scope(model.temporaries());
    const Tensor converted = model.temporaries().allocate(stored.dtype, Shape{count});
    model.ops().cast(rows.slice(0, at, at + count), converted, stream);
    model.device().copy(bytes.data(), converted.raw(), converted.bytes(), stream);
    stream.synchronize();
    file.write(data_start + stored.first + to, bytes.data(), converted.bytes());
  });
}

}  // namespace

void save_model(Model& model, const std::string& folder, const SaveOptions& options) {
  Gangs& gangs = model.gangs();
  Gang& root = *gangs.root();
  Stream& stream = model.device().stream();
  TemporaryFile temporary;  // rank 0's; removed on every way out but the good one
  SafetensorsHeader header;
  std::string bytes;
  const CollectiveCall call(gangs, "save");
  call.check(
      [&] {
        check(model, folder, options);
        header = describe(model, options);
        bytes = make_safetensors_header(header);
        if (root.rank() != 0) return;
        std::error_code error;
        std::filesystem::create_directories(folder, error);
        if (error) fail_system(Code::io, text("save: making ", folder), error.value());
        temporary.create(std::filesystem::absolute(folder).string(), "model.safetensors");
        temporary.file.write(0, bytes.data(), bytes.size());
      },
      text("save with dtype ", options.dtype == DType{} ? "the master's" : name(options.dtype)));

  // Ranks may have other working folders: they are told the whole path.
  const std::string path = root.broadcast_bytes(Channel::control, temporary.path(), 0);
  call.check([&] {
    OwnedFile own;
    own.open(path, O_WRONLY, "opening");
    for (const NamedParameter& named : model.parameters())
      if (writes(*named.parameter, gangs))
        write_rows(model, *named.parameter, header.tensors.at(named.name), bytes.size(), own, stream);
    own.sync();
    own.close();
  });

  call.check([&] {
    if (root.rank() != 0) return;
    temporary.file.sync();
    temporary.file.close();
    const std::string whole = std::filesystem::path(temporary.path()).parent_path().string();
    if (const LlamaConfig* config = llama_config(model.root()))
      write_whole(whole, "config.json",
                  config_json(*config, stored_dtype(*model.parameters()[0].parameter, options)));
    temporary.rename_to(whole + "/model.safetensors");
    sync_folder(whole);
  });
}

}  // namespace gangway

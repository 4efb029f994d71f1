// The files that a load reads: one file, or a folder that has model.safetensors (or another stem), or an
// index and the files that it names. An index may list tensors that are not in its files: some programs leave
// lm_head.weight in the index of a tied model. The folder opens all the same, and a load that wants such a
// tensor is refused.
//
// Thread rule: values; one thread per object.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "checkpoint/safetensors.h"

namespace gangway {

class Source {
 public:
  struct Entry {
    const SafetensorsFile* file = nullptr;
    StoredTensor tensor;
  };

  // Opens all files of one checkpoint. If a save replaces the checkpoint meanwhile, it opens the new one
  // instead. IO, CORRUPT. NOT_SUPPORTED: the folder has weights in a format that this library does not read.
  // `stem`: how a folder's files are called, as in model.safetensors.
  static Source open(const std::string& path, const std::string& stem = "model");

  const std::map<std::string, Entry>& tensors() const { return tensors_; }
  // Names of tensors that the index lists although no file has them, each with the error for a load of it.
  const std::map<std::string, Error>& absent() const { return absent_; }
  // CORRUPT or IO: a tensor is absent.
  void check_complete() const;
  // The folder's config.json; null if the folder has none, or the path is that of a file.
  const InputFile* config() const { return config_.get(); }
  const std::string& config_text() const { return config_text_; }

  // Returns a line for each file: name, size, time, hash of its header and, if `same_host`, device and inode.
  std::vector<std::string> lines(bool same_host) const;
  // IO: a file has changed since it was opened.
  void check_unchanged() const;

 private:
  // A file that the index names; without `file`, `missing` says that there is none.
  struct Listed {
    const SafetensorsFile* file = nullptr;
    std::optional<Error> missing;
  };
  Listed open_listed(const std::string& path);
  void open_file(const std::string& path);
  void open_folder(const std::string& path, const std::string& stem);
  void open_index(const std::string& folder, const std::string& name);
  const SafetensorsFile& add(const std::string& path);
  std::vector<const InputFile*> files() const;

  std::map<std::string, Entry> tensors_;
  std::map<std::string, Error> absent_;
  std::vector<std::unique_ptr<SafetensorsFile>> weights_;
  std::unique_ptr<InputFile> config_, index_;
  std::string config_text_;
  uint64_t index_hash_ = 0;
};

}  // namespace gangway

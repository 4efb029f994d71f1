// safetensors files: reading any published one safely, writing one that others read. Bytes are hostile until proven:
// header length, JSON, dtypes, shapes and offsets are all checked, nothing is allocated by what a header claims.
//
// Thread rule: values; one thread per object.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "parallel/model.h"

namespace gangway {

struct StoredTensor {
  DType dtype = DType::f32;
  Shape shape;
  uint64_t first = 0, last = 0;  // bytes in the file's data section
};

class SafetensorsFile {
 public:
  // IO (with the system's words) or CORRUPT (with the field and the numbers).
  explicit SafetensorsFile(const std::string& path);
  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const std::map<std::string, StoredTensor>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  // Bytes [first, last) of one tensor's data.
  void read(const StoredTensor& tensor, uint64_t first, uint64_t last, void* out) const;

 private:
  std::string path_;
  int file_ = -1;
  uint64_t data_start_ = 0;
  std::map<std::string, StoredTensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

struct SaveOptions {
  DType dtype = DType{};  // none: the master's
  std::map<std::string, std::string> metadata;
};

// Writes folder/model.safetensors (Hugging Face's names) and, for a Llama, folder/config.json. Collective; each rank
// writes its own rows into the file; complete and renamed into place at the end, or not there at all.
void save_model(Model& model, const std::string& folder, const SaveOptions& options);

// Reads a file or a folder (model.safetensors, or model.safetensors.index.json with its shards) into a materialised
// model on any mesh; each rank reads its rows only. Collective; refusals are agreed: a name that lacks (NOT_FOUND), a
// shape that differs, a dtype that is not floating (INVALID_ARGUMENT). Extra names in the file are an error when
// `strict`. Goes through the fence.
void load_model(Model& model, const std::string& path, bool strict = true);

}  // namespace gangway

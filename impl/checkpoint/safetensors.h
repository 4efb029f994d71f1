// The checkpoint layer. Belongs here: files of models, their formats, which rank reads and writes which rows. Does not:
// where rows lie in memory (parallel), anything that a step needs (train).
//
// safetensors files: reading any published one safely, writing one that others read. Bytes are hostile until
// proven: header length, JSON, dtypes, shapes and offsets are all checked, nothing is allocated by what a
// header claims.
//
// Thread rule: values; one thread per object.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "tensor/shape.h"

namespace gangway {

class Model;  // parallel/model.h

struct StoredTensor {
  DType dtype = DType::f32;
  Shape shape;
  uint64_t first = 0, last = 0;  // bytes in the file's data section
};

struct SafetensorsHeader {
  std::map<std::string, StoredTensor> tensors;
  std::map<std::string, std::string> metadata;
};

constexpr uint64_t kSafetensorsHeaderLimit = 100'000'000;  // bytes; the format's own

// The JSON of a header over a data section of `data_bytes`. CORRUPT: what is not exactly the format; the
// tensors must cover the data section without gap or overlap. NOT_SUPPORTED: over 8 dims.
SafetensorsHeader parse_safetensors_header(std::string_view json, uint64_t data_bytes);

// Length, JSON and padding (the data section starts at a multiple of 8), ready to be written. Offsets are
// filled in: widest dtype first, then by name. INVALID_ARGUMENT: a dtype that the format lacks, metadata that
// is not UTF-8.
std::string make_safetensors_header(SafetensorsHeader& header);

// The format's name of a dtype ("BF16"); empty when it has none.
std::string safetensors_dtype(DType dtype);

class SafetensorsFile {
 public:
  // IO (with the system's words) or CORRUPT (with the field and the numbers).
  explicit SafetensorsFile(const std::string& path);
  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const std::string& path() const { return path_; }
  const std::map<std::string, StoredTensor>& tensors() const { return header_.tensors; }
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }
  // Bytes [first, last) of one tensor's data.
  void read(const StoredTensor& tensor, uint64_t first, uint64_t last, void* out) const;

 private:
  void open_and_parse();

  std::string path_;
  int file_ = -1;
  uint64_t data_start_ = 0;
  SafetensorsHeader header_;
};

struct SaveOptions {
  DType dtype = DType{};  // none: the master's
  std::map<std::string, std::string> metadata;
};

// Writes folder/model.safetensors (Hugging Face's names) and, for a Llama, folder/config.json. Collective;
// each rank writes its own rows into the file; complete and renamed into place at the end, or not there at
// all.
void save_model(Model& model, const std::string& folder, const SaveOptions& options);

// Reads a file or a folder (model.safetensors, or model.safetensors.index.json with its shards) into a
// materialised model on any mesh; each rank reads its rows only. Collective; refusals are agreed: a name that
// lacks (NOT_FOUND), a shape that differs, a dtype that is not floating (INVALID_ARGUMENT). Extra names in
// the file are an error when `strict`. Goes through the fence. A read that fails after the checks is thrown
// on all ranks and leaves values undefined; the gangs work on.
void load_model(Model& model, const std::string& path, bool strict = true);

}  // namespace gangway

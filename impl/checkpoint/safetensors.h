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
#include "checkpoint/input_file.h"
#include "tensor/shape.h"

namespace gangway {

class Model;   // parallel/model/model.h
class Module;  // nn/module.h

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

  const InputFile& file() const { return file_; }
  uint64_t header_hash() const { return header_hash_; }
  const std::map<std::string, StoredTensor>& tensors() const { return header_.tensors; }
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }
  // Bytes [first, last) of one tensor's data.
  void read(const StoredTensor& tensor, uint64_t first, uint64_t last, void* out) const;

 private:
  void parse();

  InputFile file_;
  uint64_t data_start_ = 0, header_hash_ = 0;
  SafetensorsHeader header_;
};

struct SaveOptions {
  DType dtype = DType{};  // none: the master's
  std::map<std::string, std::string> metadata;
};

// Hugging Face's names of the files in a folder.
inline constexpr char kWeightsName[] = "model.safetensors";
inline constexpr char kIndexName[] = "model.safetensors.index.json";

// Writes folder/model.safetensors and, for a Llama, folder/config.json. Collective; each rank writes its own rows into the
// file. One commit (save_folder.h): readers find all of the earlier checkpoint or all of the new one, whose files replace
// also an index and the files model-*-of-*.safetensors beside it.
void save_model(Model& model, const std::string& folder, const SaveOptions& options);

struct LoadOptions {
  // Tensors that the model has no place for are no error: other names, and lm_head.weight where it is tied.
  bool ignore_extra = false;
  // A folder's config.json may describe another model.
  bool ignore_config = false;
};

// Reads a file or a folder (model.safetensors, or model.safetensors.index.json with its files) into a materialised model
// on any mesh; each rank reads its rows only. Collective; refusals are agreed and change nothing: a name is missing
// (NOT_FOUND), a shape differs, a dtype is not floating, a tied parameter has two values, the folder's config.json
// describes another model (INVALID_ARGUMENT), ranks have opened different files (MISMATCH). Goes through the fence. A read
// that fails after that, or a file that changed meanwhile, is IO on all ranks and leaves values undefined; the gangs work
// on.
void load_model(Model& model, const std::string& path, const LoadOptions& options = {});

// Local. Throws what load_model would refuse of names, shapes and dtypes; takes no memory for values.
void check_loads(const Module& model, const std::string& path);

}  // namespace gangway

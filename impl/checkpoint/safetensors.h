// safetensors files: reads any published file safely, and writes files that other libraries read. Input is
// not trusted: header length, JSON, dtypes, shapes and offsets are all checked, and no size that a header
// states is allocated unchecked. A file may have tensors that the format allows but this library cannot read:
// the file opens, and a caller that wants such a tensor's values refuses it.
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

struct StoredTensor {
  DType dtype = DType::f32;
  Shape shape;
  uint64_t first = 0, last = 0;  // the bytes [first, last) of the file's data section
  // Why this library cannot read the tensor, as "is F4, a dtype that this library does not read". Empty: it
  // can. Otherwise dtype and shape have no meaning.
  std::string unreadable = {};
};

// NOT_SUPPORTED: the tensor `name` of the file `path` cannot be read. The text begins with `call`.
void check_readable(const StoredTensor& tensor, const std::string& name, const std::string& path,
                    const char* call);

struct SafetensorsHeader {
  std::map<std::string, StoredTensor> tensors;
  std::map<std::string, std::string> metadata;
};

// What to do with weights that PyTorch wrote, for the text of a refusal.
inline constexpr char kHowToConvert[] =
    "convert it with transformers: AutoModelForCausalLM.from_pretrained(FOLDER).save_pretrained(NEW_FOLDER)";

constexpr uint64_t kSafetensorsHeaderLimit = 100'000'000;  // bytes; the limit of the format

// Parses the JSON of a header, whose file has a data section of `data_bytes`. CORRUPT: the JSON is not
// exactly the format, a dtype is not one of the format, or the tensors do not cover the data section without
// gap and overlap.
SafetensorsHeader parse_safetensors_header(std::string_view json, uint64_t data_bytes);

// Returns the bytes before the data section: length, JSON, and padding to a multiple of 64, since memory is
// copied faster to addresses of a cache line (HostCopy lays rows out as their file does). Sets the offsets of
// the tensors: the widest dtypes first, then by name. INVALID_ARGUMENT: a dtype that the format lacks,
// metadata that is not UTF-8, or a header over the limit.
std::string make_safetensors_header(SafetensorsHeader& header);

// Returns the format's name of a dtype, such as "BF16"; empty if it has none.
std::string safetensors_dtype(DType dtype);

class SafetensorsFile {
 public:
  // IO (with the system's message), CORRUPT (with the field and the numbers). NOT_SUPPORTED: the file is one
  // that PyTorch or llama.cpp writes.
  explicit SafetensorsFile(const std::string& path);

  const InputFile& file() const { return file_; }
  uint64_t header_hash() const { return header_hash_; }
  const std::map<std::string, StoredTensor>& tensors() const { return header_.tensors; }
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }
  // Reads bytes [first, last) of one tensor's data.
  void read(const StoredTensor& tensor, uint64_t first, uint64_t last, void* out) const;

 private:
  void parse();

  InputFile file_;
  uint64_t data_start_ = 0, header_hash_ = 0;
  SafetensorsHeader header_;
};

}  // namespace gangway

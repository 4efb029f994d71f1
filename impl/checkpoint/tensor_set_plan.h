// Which safetensors file each tensor of a set is in, and at which byte: one file, or several with an index
// above a size.
//
// Thread rule: values.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "tensor/shape.h"

namespace gangway {

struct TensorSpecOnDisk {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
};

// The same on every rank that makes it from the same list.
class TensorSetPlan {
 public:
  // `stem`: "model" gives model.safetensors, or model-00001-of-00003.safetensors and
  // model.safetensors.index.json when the data exceeds `max_file_bytes` (0: no limit; a tensor is never cut).
  // "teacher/model" gives the same files in a folder. The metadata {"format": "pt"}, which Hugging Face's
  // loader requires, is added. INVALID_ARGUMENT: a name occurs twice, or what make_safetensors_header
  // refuses.
  TensorSetPlan(const std::string& stem, std::vector<TensorSpecOnDisk> tensors, uint64_t max_file_bytes,
                const std::map<std::string, std::string>& metadata);

  struct File {
    std::string name, header;  // header: the bytes before the data section
    uint64_t bytes = 0;        // of the whole file
  };
  const std::vector<File>& files() const { return files_; }
  const std::string& index_name() const { return index_name_; }  // "": one file, no index
  const std::string& index() const { return index_; }            // its text
  struct Place {
    size_t file = 0;     // in files()
    uint64_t first = 0;  // byte of the file at which the tensor's data begins
    TensorSpecOnDisk spec;
  };
  const Place& place(const std::string& tensor) const;  // NOT_FOUND

 private:
  void make_index(const std::string& stem, uint64_t total);

  std::vector<File> files_;
  std::string index_name_, index_;
  std::map<std::string, Place> places_;
};

}  // namespace gangway

// Writes a set of tensors as one safetensors file, or as several with an index above a size. The tensors are
// cut into boxes that different ranks write; every rank writes its own boxes and records their hashes.
//
// Thread rule: values; several threads may write different boxes of one set.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "checkpoint/run/direct_file.h"
#include "checkpoint/run/state.h"
#include "tensor/shape.h"

namespace gangway {

struct TensorSpecOnDisk {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
};

// Which file each tensor is in, and at which byte. The same on every rank that makes it from the same list.
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

// Creates all files of a plan in a folder: their headers, their full sizes (on disk, so that a full disk is
// found here), and the index; syncs them. One rank calls it before the others open the files. Returns their
// records without blocks. IO.
std::vector<StoredFile> create_files(const TensorSetPlan& plan, const std::string& folder);

// One rank's way to the files of a plan.
class TensorSetWriter {
 public:
  TensorSetWriter(const TensorSetPlan& plan, const std::string& folder);
  // Writes one box of a tensor from dense host memory, row-major, in the tensor's dtype; cuts it into blocks
  // of at most kBlockBytes and records their hashes. INVALID_ARGUMENT: the box is not inside the tensor. IO.
  void write(const std::string& tensor, const Box& box, const void* data);
  void sync();  // fsync of every file that was written to, and closes them. IO.
  // The records of the blocks that this writer wrote, by file.
  const std::map<std::string, std::vector<StoredBlock>>& blocks() const { return blocks_; }

 private:
  const TensorSetPlan& plan_;
  std::string folder_;
  std::map<size_t, DirectFile> files_;  // opened at their first write
  std::map<std::string, std::vector<StoredBlock>> blocks_;
};

}  // namespace gangway

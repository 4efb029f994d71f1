// Writes a set of tensors as one safetensors file, or as several with an index above a size. The tensors are
// cut into boxes that different ranks write; every rank writes its own boxes and records their hashes.
//
// Thread rule: values; several threads may write different boxes of one set.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "checkpoint/run/direct_file.h"
#include "checkpoint/run/state.h"
#include "checkpoint/tensor_set_plan.h"
#include "tensor/layout.h"

namespace gangway {

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

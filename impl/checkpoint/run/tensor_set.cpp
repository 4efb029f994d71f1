#include "checkpoint/run/tensor_set.h"

#include <fcntl.h>
#include <xxhash.h>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/line.h"
#include "checkpoint/folders.h"
#include "checkpoint/run/blocks.h"
#include "checkpoint/run/plain_files.h"
#include "checkpoint/safetensors.h"

namespace gangway {

std::vector<StoredFile> create_files(const TensorSetPlan& plan, const std::string& folder) {
  std::vector<StoredFile> records;
  for (const TensorSetPlan::File& file : plan.files()) {
    const std::string path = folder + "/" + file.name;
    make_folders(path.substr(0, path.rfind('/')));
    OutputFile out(path, O_WRONLY | O_CREAT | O_EXCL);
    out.reserve(file.bytes);
    out.write(0, file.header.data(), file.header.size());
    out.sync();
    out.close();
    records.push_back({file.name, file.bytes, XXH3_64bits(file.header.data(), file.header.size()), {}});
  }
  if (!plan.index_name().empty()) records.push_back(write_file(folder, plan.index_name(), plan.index()));
  return records;
}

TensorSetWriter::TensorSetWriter(const TensorSetPlan& plan, const std::string& folder)
    : plan_(plan), folder_(folder) {}

void TensorSetWriter::write(const std::string& tensor, const Box& box, const void* data) {
  const TensorSetPlan::Place& place = plan_.place(tensor);
  if (!is_inside(box, place.spec.shape))
    fail(Code::invalid_argument, "checkpoint: box ", text_of(box), " is not inside tensor ",
         printable(tensor), " of shape ", place.spec.shape.text());
  const std::string& name = plan_.files()[place.file].name;
  DirectFile& file = files_[place.file];
  if (!file.is_open()) file.open(folder_ + "/" + name);
  const size_t item = item_bytes(place.spec.dtype);
  for_each_block(box.shape, item, [&](const Box& part, int64_t at) {
    poll_interrupt_throttled();
    StoredBlock block{tensor, part, 0};
    for (int d = 0; d < box.shape.rank(); ++d)
      block.box.first[static_cast<size_t>(d)] += box.first[static_cast<size_t>(d)];
    const char* const bytes = static_cast<const char*>(data) + static_cast<size_t>(at) * item;
    block.hash = XXH3_64bits(bytes, bytes_of(part.shape, item));
    for_each_run(place.spec.shape, block.box, [&](int64_t global, int64_t local, int64_t count) {
      file.write(place.first + static_cast<uint64_t>(global) * item,
                 bytes + static_cast<size_t>(local) * item, static_cast<size_t>(count) * item);
    });
    blocks_[name].push_back(std::move(block));
  });
}

void TensorSetWriter::sync() {
  for (auto& [index, file] : files_) {
    file.sync();
    file.close();
  }
  files_.clear();
}

}  // namespace gangway

// The copy in host memory of the rows that a rank saves. A save copies, and training goes on while a thread
// writes the copy. The memory stays for the next save.
//
// Thread rule: one thread at a time.
#pragma once

#include <functional>
#include <memory>

#include "checkpoint/run/save_plan.h"

namespace gangway {

class HostCopy {
 public:
  size_t bytes() const { return memory_ != nullptr ? memory_->bytes() : 0; }
  // Makes room for the rows of a plan. OUT_OF_MEMORY.
  void reserve(const SavePlan& plan);
  // Copies all rows and waits for the copies.
  void fill(const SavePlan& plan);
  // The memory, for the thread that reads it, and the byte in it at which the copy begins.
  std::shared_ptr<const Buffer> memory() const { return memory_; }
  char* data() const;

 private:
  std::shared_ptr<Buffer> memory_;
};

// Shows rows to the host without a copy of all of them: rows that the host can read and that are stored in
// their own dtype where they are, others through a buffer of kBlockBytes.
class RowBlocks {
 public:
  // Calls use(box of the tensor, its elements) for boxes that have all of the rows.
  void each(const SavedRows& rows, const std::function<void(const Box&, const void*)>& use);

 private:
  std::shared_ptr<Buffer> block_;
};

}  // namespace gangway

// The temporaries of a launch whose outputs accumulate: NCCL writes the sums there, and they are added to the
// caller's memory afterwards. They lie in one block, because each block that is freed costs an event.
//
// Thread rule: values of one thread.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "gang/collective.h"
#include "tensor/tensor.h"

namespace gangway::nccl {

struct Sums {
  struct One {
    DType dtype;
    void *from, *to;
    size_t count;
  };
  std::shared_ptr<Buffer> block;  // null: there are none
  std::vector<One> all;           // of the records that accumulate, in their order
};

// Returns whether the record accumulates, and so needs a temporary if it has an output.
bool adds(const Collective& c);

// Takes the memory from `own` (may be null) if it is large enough, else from the device.
std::shared_ptr<Sums> temporaries(std::span<const Collective> span, int rank, int size,
                                  const std::shared_ptr<Buffer>& own, Device& device);

}  // namespace gangway::nccl
